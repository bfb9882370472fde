//! Tests of the states through their public interface: the published vectors, a common contract, and each
//! state against a naive model.

mod bootstrap;
mod contract;
mod distinct_sample;
mod distinct_values;
mod float_sum;
mod hll;
mod ids;
mod moments;
mod quantiles;
mod small;
mod sorted_ids;
mod top_k;
mod vectors;

/// Splits values into parts at random places, builds a state of each and merges the states in
/// a random tree: any grouping that workers, threads and snapshots may produce.
fn in_random_groups<T, S>(
    values: &[T],
    cuts: &[proptest::sample::Index],
    picks: &[proptest::sample::Index],
    new: impl Fn() -> S,
    add: impl Fn(&mut S, &T),
    merge: impl Fn(&mut S, &S),
) -> S {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(values.len() + 1)).collect();
    ends.push(values.len());
    ends.sort_unstable();
    let mut start = 0;
    let mut states: Vec<S> = Vec::new();
    for end in ends {
        let mut state = new();
        values[start..end].iter().for_each(|value| add(&mut state, value));
        states.push(state);
        start = end;
    }
    for pick in picks.iter().cycle() {
        if states.len() == 1 {
            break;
        }
        let other = states.swap_remove(pick.index(states.len()));
        let into = pick.index(states.len());
        merge(&mut states[into], &other);
    }
    states.remove(0)
}

/// Generates `cuts` and `picks` for [`in_random_groups`].
fn grouping() -> impl proptest::strategy::Strategy<
    Value = (Vec<proptest::sample::Index>, Vec<proptest::sample::Index>),
> {
    use proptest::collection::vec;
    use proptest::prelude::any;
    (vec(any::<proptest::sample::Index>(), 0..6), vec(any::<proptest::sample::Index>(), 1..6))
}
