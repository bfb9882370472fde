//! The answers of a whole table, made ahead of whoever takes them.
//!
//! A table of few groups has one answer, which is made when it is asked for. The parts of a larger one are made
//! on a thread beside, so that groups are finished while others are written. What has been made and not
//! been taken is bounded in bytes.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use arrow::array::RecordBatch;
use parking_lot::{Condvar, Mutex};
use tidemill_base::batch_compaction::visible_values_bytes;
use tidemill_base::error::{Error, Result, catch_panic};
use tidemill_base::large_stack::RUN_STACK_BYTES;
use tidemill_tables::merge::MergedTable;

/// Answers in their order.
pub(crate) struct Answers<F> {
    source: From<F>,
    /// What waits may have so many bytes, and one answer more.
    waiting_max: usize,
}

enum From<F> {
    /// Made when they are asked for; `note` is told of each.
    Here(Box<(MergedTable, F)>),
    /// Made by another thread, which ends once nobody takes them.
    Thread {
        made: Receiver<Result<RecordBatch>>,
        waiting: Arc<Waiting>,
    },
    End,
}

/// How many bytes have been made and not been taken.
#[derive(Default)]
struct Waiting {
    bytes: Mutex<usize>,
    taken: Condvar,
}

impl<F: FnMut(&mut MergedTable) -> Result<Option<RecordBatch>> + Send + 'static> Answers<F> {
    /// The answers that `next` makes of a table.
    pub(crate) fn new(merged: MergedTable, next: F, waiting_max: usize) -> Self {
        Answers { source: From::Here(Box::new((merged, next))), waiting_max }
    }

    /// Has the rest made by a thread, where there can be any.
    fn go_on(&mut self, mut rest: Box<(MergedTable, F)>) {
        if rest.0.is_done() {
            return;
        }
        let waiting = Arc::<Waiting>::default();
        let (sender, made) = channel();
        let (own, waiting_max) = (Arc::clone(&waiting), self.waiting_max);
        let started = std::thread::Builder::new()
            .name("finish".to_owned())
            .stack_size(RUN_STACK_BYTES)
            .spawn(move || {
                let (merged, next) = &mut *rest;
                own.fill(&sender, waiting_max, || next(merged));
            });
        self.source = match started {
            Ok(_) => From::Thread { made, waiting },
            Err(error) => {
                let error = Error::Io { action: "start", path: "a thread".into(), source: error };
                let (sender, made) = channel();
                // Its other end is here.
                let _ = sender.send(Err(error));
                From::Thread { made, waiting }
            }
        };
    }
}

impl Waiting {
    /// Makes answers until there are no more, one fails, or nobody takes them.
    fn fill(
        &self,
        sender: &Sender<Result<RecordBatch>>,
        waiting_max: usize,
        mut next: impl FnMut() -> Result<Option<RecordBatch>>,
    ) {
        loop {
            let Some(answer) = catch_panic(&mut next).transpose() else { return };
            let is_last = answer.is_err();
            let bytes = answer.as_ref().map_or(0, bytes_of);
            let mut waiting = self.bytes.lock();
            *waiting += bytes;
            if sender.send(answer).is_err() || is_last {
                return;
            }
            // Who drops the receiver takes what waits.
            self.taken.wait_while(&mut waiting, |waiting| *waiting > waiting_max);
        }
    }

    fn take(&self, bytes: usize) {
        let mut waiting = self.bytes.lock();
        *waiting = waiting.saturating_sub(bytes);
        self.taken.notify_all();
    }
}

fn bytes_of(answer: &RecordBatch) -> usize {
    answer.columns().iter().map(visible_values_bytes).sum()
}

impl<F: FnMut(&mut MergedTable) -> Result<Option<RecordBatch>> + Send + 'static> Iterator
    for Answers<F>
{
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        match std::mem::replace(&mut self.source, From::End) {
            From::Here(mut here) => {
                let answer = (here.1)(&mut here.0).transpose();
                if matches!(answer, Some(Ok(_))) {
                    self.go_on(here);
                }
                answer
            }
            From::Thread { made, waiting } => {
                let answer = made.recv().ok()?;
                if let Ok(answer) = &answer {
                    waiting.take(bytes_of(answer));
                    self.source = From::Thread { made, waiting };
                }
                Some(answer)
            }
            From::End => None,
        }
    }
}

impl<F> Drop for Answers<F> {
    fn drop(&mut self) {
        if let From::Thread { made, waiting } = std::mem::replace(&mut self.source, From::End) {
            drop(made);
            waiting.take(usize::MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, AsArray, Int64Array};
    use arrow::datatypes::Int64Type;

    use super::*;

    fn answer(n: i64) -> RecordBatch {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values([n; 8]));
        RecordBatch::try_from_iter([("n", column)]).unwrap()
    }

    /// What is made by `next`, with room for `waiting_max` bytes, and taken until `enough`.
    fn taken(
        waiting_max: usize,
        enough: usize,
        mut next: impl FnMut(i64) -> Result<Option<RecordBatch>> + Send,
    ) -> Vec<Result<i64>> {
        let (waiting, (sender, made)) = (Waiting::default(), channel());
        std::thread::scope(|scope| {
            let maker = scope.spawn(|| {
                let mut n = 0;
                let sender = sender;
                waiting.fill(&sender, waiting_max, || {
                    n += 1;
                    next(n)
                });
            });
            let mut taken = Vec::new();
            while taken.len() < enough
                && let Ok(answer) = made.recv()
            {
                if let Ok(answer) = &answer {
                    waiting.take(bytes_of(answer));
                }
                let number = |it: RecordBatch| it.column(0).as_primitive::<Int64Type>().value(0);
                taken.push(answer.map(number));
            }
            drop(made);
            waiting.take(usize::MAX);
            maker.join().unwrap();
            taken
        })
    }

    #[test]
    fn answers_come_in_their_order_until_one_fails_or_nobody_takes_them() {
        for waiting_max in [0, 100, 1 << 20] {
            let all = taken(waiting_max, 100, |n| Ok((n <= 20).then(|| answer(n))));
            assert!(all.into_iter().map(Result::unwrap).eq(1..=20));
            let some = taken(waiting_max, 3, |n| Ok(Some(answer(n))));
            assert!(some.into_iter().map(Result::unwrap).eq(1..=3));
            let failing = taken(waiting_max, 100, |n| match n {
                3 => Err(Error::Interrupted),
                n => Ok(Some(answer(n))),
            });
            assert!(matches!(failing.as_slice(), [Ok(1), Ok(2), Err(Error::Interrupted)]));
            let panicking = taken(waiting_max, 100, |n| match n {
                2 => panic!("a state is wrong"),
                n => Ok(Some(answer(n))),
            });
            assert!(matches!(panicking.as_slice(), [Ok(1), Err(Error::Internal(_))]));
        }
    }
}
