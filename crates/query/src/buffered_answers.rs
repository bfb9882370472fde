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
pub(crate) struct BufferedAnswers<F> {
    producer: AnswerProducer<F>,
    /// What waits may have so many bytes, and one answer more.
    backlog_bytes_max: usize,
}

enum AnswerProducer<F> {
    /// Made when they are asked for; `note` is told of each.
    OnDemand(Box<(MergedTable, F)>),
    /// Made by another thread, which ends once nobody takes them.
    Thread {
        answers: Receiver<Result<RecordBatch>>,
        backlog: Arc<AnswerBacklog>,
    },
    Exhausted,
}

/// How many bytes have been made and not been taken.
#[derive(Default)]
struct AnswerBacklog {
    bytes: Mutex<usize>,
    answer_taken: Condvar,
}

impl<F: FnMut(&mut MergedTable) -> Result<Option<RecordBatch>> + Send + 'static>
    BufferedAnswers<F>
{
    /// The answers that `next` makes of a table.
    pub(crate) fn new(merged: MergedTable, next: F, waiting_max: usize) -> Self {
        BufferedAnswers {
            producer: AnswerProducer::OnDemand(Box::new((merged, next))),
            backlog_bytes_max: waiting_max,
        }
    }

    /// Has the rest made by a thread, where there can be any.
    fn start_producer_thread(&mut self, mut rest: Box<(MergedTable, F)>) {
        if rest.0.is_done() {
            return;
        }
        let waiting = Arc::<AnswerBacklog>::default();
        let (sender, made) = channel();
        let (own, waiting_max) = (Arc::clone(&waiting), self.backlog_bytes_max);
        let started = std::thread::Builder::new()
            .name("finish".to_owned())
            .stack_size(RUN_STACK_BYTES)
            .spawn(move || {
                let (merged, next) = &mut *rest;
                own.produce_answers(&sender, waiting_max, || next(merged));
            });
        self.producer = match started {
            Ok(_) => AnswerProducer::Thread { answers: made, backlog: waiting },
            Err(error) => {
                let error = Error::Io { action: "start", path: "a thread".into(), source: error };
                let (sender, made) = channel();
                // Its other end is here.
                let _ = sender.send(Err(error));
                AnswerProducer::Thread { answers: made, backlog: waiting }
            }
        };
    }
}

impl AnswerBacklog {
    /// Makes answers until there are no more, one fails, or nobody takes them.
    fn produce_answers(
        &self,
        sender: &Sender<Result<RecordBatch>>,
        waiting_max: usize,
        mut next: impl FnMut() -> Result<Option<RecordBatch>>,
    ) {
        loop {
            let Some(answer) = catch_panic(&mut next).transpose() else { return };
            let is_last = answer.is_err();
            let bytes = answer.as_ref().map_or(0, answer_bytes);
            let mut waiting = self.bytes.lock();
            *waiting += bytes;
            if sender.send(answer).is_err() || is_last {
                return;
            }
            // Who drops the receiver takes what waits.
            self.answer_taken.wait_while(&mut waiting, |waiting| *waiting > waiting_max);
        }
    }

    fn release_bytes(&self, bytes: usize) {
        let mut waiting = self.bytes.lock();
        *waiting = waiting.saturating_sub(bytes);
        self.answer_taken.notify_all();
    }
}

fn answer_bytes(answer: &RecordBatch) -> usize {
    answer.columns().iter().map(visible_values_bytes).sum()
}

impl<F: FnMut(&mut MergedTable) -> Result<Option<RecordBatch>> + Send + 'static> Iterator
    for BufferedAnswers<F>
{
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        match std::mem::replace(&mut self.producer, AnswerProducer::Exhausted) {
            AnswerProducer::OnDemand(mut here) => {
                let answer = (here.1)(&mut here.0).transpose();
                if matches!(answer, Some(Ok(_))) {
                    self.start_producer_thread(here);
                }
                answer
            }
            AnswerProducer::Thread { answers: made, backlog: waiting } => {
                let answer = made.recv().ok()?;
                if let Ok(answer) = &answer {
                    waiting.release_bytes(answer_bytes(answer));
                    self.producer = AnswerProducer::Thread { answers: made, backlog: waiting };
                }
                Some(answer)
            }
            AnswerProducer::Exhausted => None,
        }
    }
}

impl<F> Drop for BufferedAnswers<F> {
    fn drop(&mut self) {
        if let AnswerProducer::Thread { answers: made, backlog: waiting } =
            std::mem::replace(&mut self.producer, AnswerProducer::Exhausted)
        {
            drop(made);
            waiting.release_bytes(usize::MAX);
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
    fn take_produced_answers(
        waiting_max: usize,
        enough: usize,
        mut next: impl FnMut(i64) -> Result<Option<RecordBatch>> + Send,
    ) -> Vec<Result<i64>> {
        let (waiting, (sender, made)) = (AnswerBacklog::default(), channel());
        std::thread::scope(|scope| {
            let maker = scope.spawn(|| {
                let mut n = 0;
                let sender = sender;
                waiting.produce_answers(&sender, waiting_max, || {
                    n += 1;
                    next(n)
                });
            });
            let mut taken = Vec::new();
            while taken.len() < enough
                && let Ok(answer) = made.recv()
            {
                if let Ok(answer) = &answer {
                    waiting.release_bytes(answer_bytes(answer));
                }
                let number = |it: RecordBatch| it.column(0).as_primitive::<Int64Type>().value(0);
                taken.push(answer.map(number));
            }
            drop(made);
            waiting.release_bytes(usize::MAX);
            maker.join().unwrap();
            taken
        })
    }

    #[test]
    fn answers_keep_their_order_until_one_fails_or_the_consumer_stops() {
        for waiting_max in [0, 100, 1 << 20] {
            let all = take_produced_answers(waiting_max, 100, |n| Ok((n <= 20).then(|| answer(n))));
            assert!(all.into_iter().map(Result::unwrap).eq(1..=20));
            let some = take_produced_answers(waiting_max, 3, |n| Ok(Some(answer(n))));
            assert!(some.into_iter().map(Result::unwrap).eq(1..=3));
            let failing = take_produced_answers(waiting_max, 100, |n| match n {
                3 => Err(Error::Interrupted),
                n => Ok(Some(answer(n))),
            });
            assert!(matches!(failing.as_slice(), [Ok(1), Ok(2), Err(Error::Interrupted)]));
            let panicking = take_produced_answers(waiting_max, 100, |n| match n {
                2 => panic!("a state is wrong"),
                n => Ok(Some(answer(n))),
            });
            assert!(matches!(panicking.as_slice(), [Ok(1), Err(Error::Internal(_))]));
        }
    }
}
