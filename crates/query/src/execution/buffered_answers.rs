//! Answers of a finished table, produced ahead of their consumer.
//!
//! A table of few groups has one answer, which the consumer's thread produces on demand. A larger table has
//! several: a producer thread makes the later ones while the consumer writes the earlier ones. The bytes of
//! answers that were produced and not yet consumed are bounded.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use arrow::array::RecordBatch;
use parking_lot::{Condvar, Mutex};
use tidemill_base::batch_compaction::visible_values_bytes;
use tidemill_base::error::{Error, Result, catch_panic};
use tidemill_base::large_stack::RUN_STACK_BYTES;
use tidemill_tables::merging::merge::MergedTable;

/// An iterator of a table's answers, in order.
pub(crate) struct BufferedAnswers<F> {
    producer: AnswerProducer<F>,
    /// Maximum bytes of unconsumed answers. One further answer may exceed it.
    backlog_bytes_max: usize,
}

enum AnswerProducer<F> {
    /// The consumer's thread produces each answer by calling the function on the table.
    OnDemand(Box<(MergedTable, F)>),
    /// Another thread produces the answers. It ends once the receiver is dropped.
    Thread {
        answers: Receiver<Result<RecordBatch>>,
        backlog: Arc<AnswerBacklog>,
    },
    Exhausted,
}

/// The bytes of answers that were produced and not yet consumed, with a signal for the producer.
#[derive(Default)]
struct AnswerBacklog {
    bytes: Mutex<usize>,
    answer_taken: Condvar,
}

impl<F: FnMut(&mut MergedTable) -> Result<Option<RecordBatch>> + Send + 'static>
    BufferedAnswers<F>
{
    /// Creates an iterator over the answers that `next` makes of a table.
    pub(crate) fn new(merged: MergedTable, next: F, waiting_max: usize) -> Self {
        BufferedAnswers {
            producer: AnswerProducer::OnDemand(Box::new((merged, next))),
            backlog_bytes_max: waiting_max,
        }
    }

    /// Starts a thread that produces the remaining answers, unless the table has none.
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
                // The receiver is still here.
                let _ = sender.send(Err(error));
                AnswerProducer::Thread { answers: made, backlog: waiting }
            }
        };
    }
}

impl AnswerBacklog {
    /// Produces answers until there are no more, one fails, or the receiver is dropped. Waits while the
    /// backlog is full.
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
            // A consumer that drops the receiver releases all bytes.
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

    /// Returns the first `enough` answers that `next` produces, with a backlog of at most `waiting_max`
    /// bytes.
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
