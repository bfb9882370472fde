//! Functions of a list whose function takes an item and its place: `list_transform(list, (x, i) -> x * i)`.
//!
//! They are functions of pairs: `array_transform(list_zip(list, generate_series(1, array_length(list))), x -> get_field(x, '1') *
//! get_field(x, '2'))`. The first place is 1 as in DuckDB, and 0 in `transform` and `filter`, which are Spark's.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Ident, LambdaFunction, OneOrManyWithParens, Value, VisitorMut,
};
use tidemill_planning::walk_expr_mut;

use super::calls::{call_of, in_brackets};
use super::comprehensions::COMPREHENSION;
use super::written;
use crate::names::folded;

/// Returns a call by places; none of a call whose function takes an item alone, and of one whose function has other functions
/// with parameters of the same names.
pub(super) fn translated(name: &str, arguments: &[&Expr]) -> Option<Expr> {
    let (is_filter, first_place) = match name {
        "list_transform" | "list_apply" | "array_transform" | "array_apply" | "apply"
        | COMPREHENSION => (false, 1),
        "list_filter" | "array_filter" => (true, 1),
        "transform" => (false, 0),
        "filter" => (true, 0),
        _ => return None,
    };
    let (list, function, condition) = match arguments {
        [list, Expr::Lambda(function)] => (list, function, None),
        [list, Expr::Lambda(function), Expr::Lambda(condition)] if name == COMPREHENSION => {
            (list, function, Some(condition))
        }
        _ => return None,
    };
    let OneOrManyWithParens::Many(parameters) = &function.params else { return None };
    let [item, place] = parameters.as_slice() else { return None };
    let names = [folded(&item.name), folded(&place.name)];
    let pair = Expr::Identifier(item.name.clone());
    let field = |name: &str| {
        let name = Expr::value(Value::SingleQuotedString(name.to_owned()));
        call_of("get_field", vec![pair.clone(), name])
    };
    let place_value = match first_place {
        0 => Expr::Nested(Box::new(Expr::BinaryOp {
            left: Box::new(field("2")),
            op: BinaryOperator::Minus,
            right: Box::new(written("1").ok()?),
        })),
        _ => field("2"),
    };
    let item_value = field("1");
    let of_pair = |body: Expr| {
        Expr::Lambda(LambdaFunction {
            params: OneOrManyWithParens::One(item.clone()),
            body: Box::new(body),
            syntax: function.syntax,
        })
    };
    let by_places = |function: &LambdaFunction| {
        let mut body = function.body.as_ref().clone();
        let mut values =
            Values { names: &names, item: &item_value, place: &place_value, is_hidden: false };
        walk_expr_mut(&mut body, &mut values);
        (!values.is_hidden).then(|| of_pair(body))
    };
    let list = in_brackets((*list).clone());
    let length = call_of("array_length", vec![list.clone()]);
    let places = call_of("generate_series", vec![written("1").ok()?, length]);
    let pairs = call_of("list_zip", vec![list, places]);
    if is_filter {
        let filtered = call_of("array_filter", vec![pairs, by_places(function)?]);
        return Some(call_of("array_transform", vec![filtered, of_pair(item_value.clone())]));
    }
    let pairs = match condition {
        Some(condition) => call_of("array_filter", vec![pairs, by_places(condition)?]),
        None => pairs,
    };
    Some(call_of("array_transform", vec![pairs, by_places(function)?]))
}

/// Puts the fields of a pair in the places of the names of an item and its place.
struct Values<'a> {
    names: &'a [String; 2],
    item: &'a Expr,
    place: &'a Expr,
    /// True if a function within has a parameter of one of the names.
    is_hidden: bool,
}

impl VisitorMut for Values<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Lambda(function) => {
                let mut own = function.params.iter().map(|parameter| folded(&parameter.name));
                self.is_hidden |= own.any(|name| self.names.contains(&name));
            }
            Expr::Identifier(name) => {
                let name = folded(name);
                if name == self.names[0] {
                    *expr = self.item.clone();
                } else if name == self.names[1] {
                    *expr = self.place.clone();
                }
            }
            // The field of an item that is a struct.
            Expr::CompoundIdentifier(parts) if folded(&parts[0]) == self.names[0] => {
                let fields = parts.iter().skip(1);
                *expr = fields.fold(self.item.clone(), |value, field| {
                    call_of("get_field", vec![value, text_of(field)])
                });
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

fn text_of(name: &Ident) -> Expr {
    Expr::value(Value::SingleQuotedString(folded(name)))
}
