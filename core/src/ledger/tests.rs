use super::*;

/// Every state × every move, against the table in the module's documentation: the two are one.
#[test]
fn the_table_is_the_documented_one() {
    let documented: Vec<Vec<&str>> = include_str!("../ledger.rs")
        .lines()
        .filter_map(|line| line.strip_prefix("//! | "))
        .map(|row| row.trim_end_matches('|').split('|').map(|cell| cell.trim().trim_matches('`')))
        .map(Iterator::collect)
        .collect();
    let [header, rows @ ..] = &documented[..] else { panic!("no table") };
    assert_eq!(rows.len(), SlotState::ALL.len());
    assert_eq!(header[1..], Move::ALL.map(|event| format!("{event:?}")));
    for (row, state) in rows.iter().zip(SlotState::ALL) {
        assert_eq!(row[0], format!("{state:?}"));
        for (cell, event) in row[1..].iter().zip(Move::ALL) {
            match state.next(event) {
                Ok(next) => assert_eq!(*cell, format!("{next:?}")),
                Err(error) => {
                    assert_eq!(*cell, "", "{state:?} × {event:?}");
                    assert_eq!(error, TransitionError { state, refused: event });
                }
            }
        }
    }
}

/// No two moves join the same two states, so a token's state tells its move.
#[test]
fn a_move_is_known_by_its_ends() {
    for from in SlotState::ALL {
        for event in Move::ALL {
            if let Ok(to) = from.next(event) {
                assert_eq!(Move::between(from, to), Some(event));
            }
        }
        assert_eq!(Move::between(from, from), None);
    }
}

#[test]
fn a_violation_names_the_buffer_its_state_and_both_places() {
    let pool = BurstPool::new(4).expect("within the limit");
    let mut ledger = Ledger::new(&pool);
    assert_eq!(ledger.record(3, Move::Begin), Ok(SlotState::Filling));
    assert_eq!(ledger.record(3, Move::Abandon), Ok(SlotState::Free));
    let since = line!() - 1;
    let error = ledger.record(3, Move::Complete).expect_err("a double free");
    let here = line!() - 1;
    let file = file!();
    let text = error.to_string();
    assert!(text.starts_with("batch buffer 3: Complete of a buffer that is Free, at "), "{text}");
    assert!(text.contains(&format!("at {file}:{here}:")), "{text}");
    assert!(text.contains(&format!("since {file}:{since}:")), "{text}");
    // It is as it was.
    let (state, place) = ledger.entry(3).expect("four buffers");
    assert_eq!((state, place.line()), (SlotState::Free, since));
    let error = ledger.record(4, Move::Begin).expect_err("there are four");
    assert!(matches!(error, LedgerError::Unknown { buffer: 4, .. }));
    assert_eq!(ledger.entry(4), None);
}

#[test]
fn a_token_that_skipped_a_move_is_noticed() {
    let mut pool = BurstPool::new(2).expect("within the limit");
    let mut ledger = Ledger::new(&pool);
    let ready = pool.take().expect("two are free").begin().seal();
    let error = ledger.see(&ready).expect_err("begin was not recorded");
    let LedgerError::Token { buffer: 0, token, ledger: state, .. } = error else {
        panic!("{error}");
    };
    assert_eq!((token, state), (SlotState::Ready, SlotState::Free));
    assert!(error.to_string().contains("a token that is Ready"), "{error}");
    // A token of another pool, with an index that this one has too.
    let stranger = BurstPool::new(2).expect("within the limit").take().expect("two are free");
    assert!(matches!(ledger.see(&stranger), Err(LedgerError::Unknown { buffer: 0, .. })));
}

#[test]
fn a_lost_token_is_missed() {
    let mut pool = BurstPool::new(3).expect("within the limit");
    let mut ledger = Ledger::new(&pool);
    let filling = pool.take().expect("three are free").begin();
    ledger.see(&filling).expect("it began");
    let mut found = Census::EMPTY;
    found.add(SlotState::Free, pool.free());
    let error = ledger.check(found).expect_err("the token in hand was not shown");
    assert_eq!(
        error.to_string(),
        "0 tokens are Filling, not 1; found 2 free + 0 filling + 0 ready + 0 in flight + 0 \
         retained = 2; the ledger has 2 free + 1 filling + 0 ready + 0 in flight + 0 retained = 3"
    );
    let suspects: Vec<u16> =
        ledger.buffers_in(SlotState::Filling).map(|(index, _)| index).collect();
    assert_eq!(suspects, [filling.index()]);
    found.add(SlotState::Filling, 1);
    assert_eq!(ledger.check(found), Ok(()));
}
