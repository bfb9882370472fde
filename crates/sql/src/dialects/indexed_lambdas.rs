//! Functions of a list whose function takes an item and its place: `list_transform(list, (x, i) -> x * i)`.
//!
//! They are functions of the places: `array_transform(generate_series(1, array_length(list)), i -> list[i] * i)`. The first
//! place is 1 as in DuckDB, and 0 in `transform` and `filter`, which are Spark's.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    AccessExpr, Expr, Ident, LambdaFunction, OneOrManyWithParens, Subscript, Value, VisitorMut,
};
use tidemill_planning::walk_expr_mut;

use super::calls::{call_of, in_brackets};
use super::written;
use crate::names::folded;

/// Returns a call by places; none of a call whose function takes an item alone, and of one whose function has other functions
/// with parameters of the same names.
pub(super) fn translated(name: &str, arguments: &[&Expr]) -> Option<Expr> {
    let (is_filter, first_place) = match name {
        "list_transform" | "list_apply" | "array_transform" | "array_apply" | "apply" => (false, 1),
        "list_filter" | "array_filter" => (true, 1),
        "transform" => (false, 0),
        "filter" => (true, 0),
        _ => return None,
    };
    let [list, Expr::Lambda(function)] = arguments else { return None };
    let OneOrManyWithParens::Many(parameters) = &function.params else { return None };
    let [item, place] = parameters.as_slice() else { return None };
    let names = [folded(&item.name), folded(&place.name)];
    let list = in_brackets((*list).clone());
    let at = Expr::Identifier(place.name.clone());
    let list_item = Expr::CompoundFieldAccess {
        root: Box::new(list.clone()),
        access_chain: vec![AccessExpr::Subscript(Subscript::Index { index: at })],
    };
    let mut body = function.body.as_ref().clone();
    let place_value = match first_place {
        0 => Some(written(&format!("({} - 1)", place.name)).ok()?),
        _ => None,
    };
    let mut places = Places {
        names: &names,
        list_item: &list_item,
        place: place_value.as_ref(),
        is_hidden: false,
    };
    _ = walk_expr_mut(&mut body, &mut places);
    if places.is_hidden {
        return None;
    }
    let by_place = |body: Expr| {
        Expr::Lambda(LambdaFunction {
            params: OneOrManyWithParens::One(place.clone()),
            body: Box::new(body),
            syntax: function.syntax,
        })
    };
    let one = written("1").ok()?;
    let length = call_of("array_length", vec![list]);
    let series = call_of("generate_series", vec![one, length]);
    Some(match is_filter {
        true => {
            let filtered = call_of("array_filter", vec![series, by_place(body)]);
            call_of("array_transform", vec![filtered, by_place(list_item)])
        }
        false => call_of("array_transform", vec![series, by_place(body)]),
    })
}

/// Puts the item of a place, and the place, in the places of their names.
struct Places<'a> {
    names: &'a [String; 2],
    list_item: &'a Expr,
    /// What the place is called by, if that is not its name.
    place: Option<&'a Expr>,
    /// Whether a function within has a parameter of one of the names.
    is_hidden: bool,
}

impl VisitorMut for Places<'_> {
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
                    *expr = self.list_item.clone();
                } else if let (true, Some(place)) = (name == self.names[1], self.place) {
                    *expr = place.clone();
                }
            }
            // The field of an item that is a struct.
            Expr::CompoundIdentifier(parts) if folded(&parts[0]) == self.names[0] => {
                let fields = parts.iter().skip(1);
                *expr = fields.fold(self.list_item.clone(), |value, field| {
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
