//! `include_config!("FILE")`: the file is checked by the rules of `tensorwire validate` while the
//! program is built, and becomes an expression of type `tensorwire_configs::Config`. A file that
//! cannot run does not compile; what is wrong with it is the error of the compiler. The program
//! that uses the macro needs `tensorwire-configs` (without its feature `yaml`) and
//! `tensorwire-core`; no YAML is read when it runs.
//!
//! A path is relative to the folder of the package that uses the macro. A name of an environment
//! variable before it, `include_config!("TENSORWIRE_CONFIG", "FILE")`, lets whoever builds choose
//! another file; a change of variable or file builds again.
//!
//! ```
//! use tensorwire_include_config::include_config;
//! let config: tensorwire_configs::Config = include_config!("../resnet50_rx_socket.yaml");
//! assert_eq!(config.geometry.images_per_batch(), 32);
//! ```
//!
//! A file that is not there, and one that cannot run:
//!
//! ```compile_fail
//! let config: tensorwire_configs::Config =
//!     tensorwire_include_config::include_config!("../no_such_file.yaml");
//! ```
//!
//! ```compile_fail
//! let config: tensorwire_configs::Config =
//!     tensorwire_include_config::include_config!("tests/wrong.yaml");
//! ```

use std::path::{Path, PathBuf};

use proc_macro::{TokenStream, TokenTree};
use tensorwire_configs::render::{Format, render, summary};
use tensorwire_configs::{Options, check_file, embed};

/// See the description of the crate.
#[proc_macro]
pub fn include_config(input: TokenStream) -> TokenStream {
    let code = match expand(input) {
        Ok(code) => code,
        Err(why) => format!("::core::compile_error!({why:?})"),
    };
    // Generated from checked values: if it does not parse, that is a fault of `embed`.
    code.parse().unwrap_or_else(|error| {
        let why = format!("include_config!: {error}");
        format!("::core::compile_error!({why:?})").parse().unwrap_or_default()
    })
}

fn expand(input: TokenStream) -> Result<String, String> {
    let (variable, default) = arguments(input)?;
    let chosen = variable.as_ref().and_then(std::env::var_os).filter(|path| !path.is_empty());
    let package = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    let path = chosen.map_or_else(|| package.join(default), PathBuf::from);
    let path = path.canonicalize().unwrap_or(path);
    let config = checked(&path)?;
    // Named, so that a change of either builds the program again.
    let variable = variable.map_or_else(String::new, |name| {
        format!("const _: ::core::option::Option<&str> = ::core::option_env!({name:?});")
    });
    let file =
        format!("const _: &[u8] = ::core::include_bytes!({:?});", path.display().to_string());
    Ok(format!("{{ {variable} {file} {} }}", embed::expression(&config)))
}

fn checked(path: &Path) -> Result<tensorwire_configs::Config, String> {
    let checked = check_file(path, &Options::default()).map_err(|error| error.to_string())?;
    let findings = || render(&[&checked], Format::Text) + &summary(&checked);
    checked.config.clone().ok_or_else(findings)
}

/// The name of a variable, if there is one, and the path.
fn arguments(input: TokenStream) -> Result<(Option<String>, String), String> {
    let usage = || "include_config!: expected \"FILE\" or \"VARIABLE\", \"FILE\"".to_owned();
    let mut texts = Vec::new();
    for token in input {
        match token {
            TokenTree::Literal(literal) => {
                let text = literal.to_string();
                let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
                texts.push(text.filter(|text| !text.contains('\\')).ok_or_else(usage)?.to_owned());
            }
            TokenTree::Punct(comma) if comma.as_char() == ',' => {}
            _ => return Err(usage()),
        }
    }
    match texts.as_slice() {
        [path] => Ok((None, path.clone())),
        [variable, path] => Ok((Some(variable.clone()), path.clone())),
        _ => Err(usage()),
    }
}
