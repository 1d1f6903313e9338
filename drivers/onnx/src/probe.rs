//! A model whose inner values can be looked at, on the CPU.
//!
//! Nothing is optimised, so each value of the file is there under its name. One image at a time;
//! values are passed to the caller and dropped, or a deep network would fill the memory.

use rten::{Model, ModelOptions, NodeId, Value, ValueOrView, ValueView};

use crate::stage::RunError;

/// A model in `rten`, not optimised.
#[derive(Debug)]
pub struct Probe {
    model: Model,
    input: NodeId,
    shape: [usize; 4],
    values: Vec<(String, NodeId)>,
}

impl Probe {
    /// Loads a model, to look at the values `names` when it is given images of `image`
    /// (channels, rows, columns) at the input `input`.
    ///
    /// # Errors
    ///
    /// [`RunError`] when `rten` refuses the model, or it has no value of one of the names.
    pub fn read(
        model: Vec<u8>,
        input: &str,
        image: [usize; 3],
        names: &[String],
    ) -> Result<Self, RunError> {
        let said = |error: String| RunError::Library(error);
        let mut options = ModelOptions::with_all_ops();
        let model = options.enable_optimization(false).load(model);
        let model = model.map_err(|error| said(error.to_string()))?;
        let node = |name: &str| {
            let found = model.find_node(name);
            found.ok_or_else(|| said(format!("the model has no value called '{name}'")))
        };
        let values = names.iter().map(|name| Ok((name.clone(), node(name)?)));
        let values = values.collect::<Result<_, RunError>>()?;
        let [channels, rows, columns] = image;
        Ok(Self { input: node(input)?, values, model, shape: [1, channels, rows, columns] })
    }

    /// The values that are looked at, in the order in which they are passed on.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.values.iter().map(|(name, _)| name.as_str())
    }

    /// Runs one image (in fp32, whatever the file says: `rten` widens) and passes each value to
    /// `visit` with its number.
    ///
    /// # Errors
    ///
    /// [`RunError`] when the library fails, or a value is no tensor of floats.
    pub fn run(&self, image: &[f32], mut visit: impl FnMut(usize, &[f32])) -> Result<(), RunError> {
        let library = |error: &dyn std::fmt::Display| RunError::Library(error.to_string());
        let view = ValueView::from_shape(&self.shape, image).map_err(|error| library(&error))?;
        let outputs: Vec<NodeId> = self.values.iter().map(|(_, node)| *node).collect();
        let inputs = vec![(self.input, ValueOrView::from(view))];
        let results = self.model.run(inputs, &outputs, None).map_err(|error| library(&error))?;
        for (number, (value, (name, _))) in results.into_iter().zip(&self.values).enumerate() {
            let tensor = Value::into_tensor::<f32>(value);
            let tensor = tensor.ok_or_else(|| RunError::OutputType { name: name.clone() })?;
            visit(number, &tensor.into_data());
        }
        Ok(())
    }
}
