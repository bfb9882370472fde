//! Translation of list functions whose lambda takes an item and its position:
//! `list_transform(list, (x, i) -> x * i)`.
//!
//! They become functions over pairs: `array_transform(list_zip(list, generate_series(1,
//! array_length(list))), x -> get_field(x, '1') * get_field(x, '2'))`. The first position is 1 as in DuckDB,
//! and 0 in Spark's `transform` and `filter`.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Ident, LambdaFunction, OneOrManyWithParens, Value, VisitorMut,
};
use tidemill_planning::walk_expr_mut;

use crate::column_names::normalize_ident;
use crate::translation::comprehensions::COMPREHENSION_FUNCTION;
use crate::translation::function_calls::{function_call, parenthesize};
use crate::translation::parse_expr;

/// Translates a call into one over pairs; `None` if its lambda takes only an item, or contains another lambda
/// with parameters of the same names.
pub(super) fn translate_indexed_lambda(name: &str, arguments: &[&Expr]) -> Option<Expr> {
    let (is_filter, first_place) = match name {
        "list_transform"
        | "list_apply"
        | "array_transform"
        | "array_apply"
        | "apply"
        | COMPREHENSION_FUNCTION => (false, 1),
        "list_filter" | "array_filter" => (true, 1),
        "transform" => (false, 0),
        "filter" => (true, 0),
        _ => return None,
    };
    let (list, function, condition) = match arguments {
        [list, Expr::Lambda(function)] => (list, function, None),
        [list, Expr::Lambda(function), Expr::Lambda(condition)]
            if name == COMPREHENSION_FUNCTION =>
        {
            (list, function, Some(condition))
        }
        _ => return None,
    };
    let OneOrManyWithParens::Many(parameters) = &function.params else { return None };
    let [item, place] = parameters.as_slice() else { return None };
    let names = [normalize_ident(&item.name), normalize_ident(&place.name)];
    let pair = Expr::Identifier(item.name.clone());
    let field = |name: &str| {
        let name = Expr::value(Value::SingleQuotedString(name.to_owned()));
        function_call("get_field", vec![pair.clone(), name])
    };
    let place_value = match first_place {
        0 => Expr::Nested(Box::new(Expr::BinaryOp {
            left: Box::new(field("2")),
            op: BinaryOperator::Minus,
            right: Box::new(parse_expr("1").ok()?),
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
        let mut values = PairFieldSubstitution {
            names: &names,
            item: &item_value,
            position: &place_value,
            is_shadowed: false,
        };
        walk_expr_mut(&mut body, &mut values);
        (!values.is_shadowed).then(|| of_pair(body))
    };
    let list = parenthesize((*list).clone());
    let length = function_call("array_length", vec![list.clone()]);
    let places = function_call("generate_series", vec![parse_expr("1").ok()?, length]);
    let pairs = function_call("list_zip", vec![list, places]);
    if is_filter {
        let filtered = function_call("array_filter", vec![pairs, by_places(function)?]);
        return Some(function_call("array_transform", vec![filtered, of_pair(item_value.clone())]));
    }
    let pairs = match condition {
        Some(condition) => function_call("array_filter", vec![pairs, by_places(condition)?]),
        None => pairs,
    };
    Some(function_call("array_transform", vec![pairs, by_places(function)?]))
}

/// Replaces the names of an item and of its position by the fields of a pair.
struct PairFieldSubstitution<'a> {
    names: &'a [String; 2],
    item: &'a Expr,
    position: &'a Expr,
    /// True if an inner lambda has a parameter of the same name.
    is_shadowed: bool,
}

impl VisitorMut for PairFieldSubstitution<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Lambda(function) => {
                let mut own =
                    function.params.iter().map(|parameter| normalize_ident(&parameter.name));
                self.is_shadowed |= own.any(|name| self.names.contains(&name));
            }
            Expr::Identifier(name) => {
                let name = normalize_ident(name);
                if name == self.names[0] {
                    *expr = self.item.clone();
                } else if name == self.names[1] {
                    *expr = self.position.clone();
                }
            }
            // The field of an item that is a struct.
            Expr::CompoundIdentifier(parts) if normalize_ident(&parts[0]) == self.names[0] => {
                let fields = parts.iter().skip(1);
                *expr = fields.fold(self.item.clone(), |value, field| {
                    function_call("get_field", vec![value, field_name_literal(field)])
                });
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

fn field_name_literal(name: &Ident) -> Expr {
    Expr::value(Value::SingleQuotedString(normalize_ident(name)))
}
