//! BYTEA, which Arrow represents by four types: coercion of values beside it, and refusal where text is
//! expected.
//!
//! - A text literal beside a BYTEA becomes one, as in PostgreSQL: `s = '\x9101'`. A text column does not,
//!   since it would be compared by the bytes of its letters.
//! - Binary types of different layouts are coerced to views.
//! - DataFusion reads bytes that are passed to a text function as UTF-8. Other bytes would then fail, and
//!   bytes that happen to be UTF-8 would be processed as letters.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::compute::cast_with_options;
use arrow::compute::kernels::length::{bit_length, length};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{DFSchema, Result as PlanResult, ScalarValue};
use datafusion::functions_nested::make_array::make_array_udf;
use datafusion::logical_expr::expr::{Case, InSubquery, ScalarFunction, SetComparison};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    Cast, Coercion, ColumnarValue, Documentation, Expr, ExprSchemable, Like, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, TypeSignatureClass, Volatility,
};
use tidemill_base::column_types::{STRICT_CAST_OPTIONS, sql_type_name};
use tidemill_base::error::Error;
use tidemill_base::hex::decode_hex;

use tidemill_dialect::error_translation::into_datafusion_error;
use tidemill_planning::datafusion_names::{aggregates, scalars};
use tidemill_planning::plan_rewriting::{invoke_unary_function, is_comparison_operator};

pub(crate) fn is_binary(of: &DataType) -> bool {
    matches!(
        of,
        DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_)
    )
}

/// Returns the common type of binary types and nulls; `None` if all have the same type or some are not
/// binary.
pub(crate) fn common_binary_type(types: &[DataType]) -> Option<DataType> {
    let first = types.iter().find(|of| !of.is_null()).filter(|of| is_binary(of))?;
    if !types.iter().all(|of| of.is_null() || is_binary(of)) || types.iter().all(|of| of == first) {
        return None;
    }
    let are_alike = types.iter().all(|of| of.is_null() || of == first);
    Some(if are_alike { first.clone() } else { DataType::BinaryView })
}

/// Returns the bytes of a text that is cast: two for `\x00ff`, and those of its letters for other texts.
fn text_to_bytes(text: &str) -> Vec<u8> {
    hex_text_to_bytes(text).unwrap_or_else(|| text.as_bytes().to_vec())
}

fn hex_text_to_bytes(text: &str) -> Option<Vec<u8>> {
    text.strip_prefix("\\x").and_then(decode_hex)
}

/// Returns a text literal as the bytes that it stands for beside a BYTEA.
pub(crate) fn text_literal_as_bytes(expr: &Expr, beside: &DataType) -> Option<Expr> {
    let Expr::Literal(value, metadata) = expr else { return None };
    let bytes = Some(text_to_bytes(value.try_as_str().flatten()?));
    let value = match beside {
        DataType::Binary | DataType::FixedSizeBinary(_) => ScalarValue::Binary(bytes),
        DataType::LargeBinary => ScalarValue::LargeBinary(bytes),
        DataType::BinaryView => ScalarValue::BinaryView(bytes),
        _ => return None,
    };
    Some(Expr::Literal(value, metadata.clone()))
}

/// Refuses a comparison of bytes with text that is no literal.
///
/// # Errors
/// [`Error::Usage`].
pub(crate) fn refuse_bytes_text_comparison(expr: &Expr, schema: &DFSchema) -> PlanResult<()> {
    let compared: Vec<&Expr> = match expr {
        Expr::BinaryExpr(binary) if is_comparison_operator(binary.op) => {
            vec![&binary.left, &binary.right]
        }
        Expr::Between(between) => vec![&between.expr, &between.low, &between.high],
        Expr::InList(among) => std::iter::once(among.expr.as_ref()).chain(&among.list).collect(),
        Expr::Case(Case { expr: Some(value), when_then_expr, .. }) => {
            let each = when_then_expr.iter().map(|(when, _)| when.as_ref());
            std::iter::once(value.as_ref()).chain(each).collect()
        }
        Expr::InSubquery(InSubquery { expr, subquery, .. })
        | Expr::SetComparison(SetComparison { expr, subquery, .. }) => {
            let rows = subquery.subquery.schema().fields();
            let rows = rows.iter().map(|field| field.data_type().clone());
            let own = match expr.as_ref() {
                Expr::Literal(_, _) => None,
                other => other.get_type(schema).ok(),
            };
            return refuse_mixed_bytes_and_text(&rows.chain(own).collect::<Vec<_>>());
        }
        _ => return Ok(()),
    };
    let typed = compared.into_iter().filter_map(|side| {
        let of = side.get_type(schema).ok()?;
        let is_written = matches!(side, Expr::Literal(_, _)) && of.is_string();
        (!is_written).then_some(of)
    });
    refuse_mixed_bytes_and_text(&typed.collect::<Vec<_>>())
}

/// Refuses types to be compared that mix bytes and text.
///
/// # Errors
/// [`Error::Usage`].
pub(crate) fn refuse_mixed_bytes_and_text(types: &[DataType]) -> PlanResult<()> {
    if !types.iter().any(is_binary) || !types.iter().any(DataType::is_string) {
        return Ok(());
    }
    Err(into_datafusion_error(Error::usage_with_hint(
        "a BYTEA and a TEXT have nothing in common",
        "CAST(text AS BYTEA) has the bytes of a text's letters, unhex(substr(text, 3)) those that its digits \
         behind `\\x` are; what stands in quotes is a BYTEA by itself: s = '\\x9101'",
    )))
}

/// Refuses bytes as an argument of a text function.
///
/// # Errors
/// [`Error::Usage`].
pub(crate) fn refuse_bytes_as_text_argument(
    call: &ScalarFunction,
    of: &[FieldRef],
) -> PlanResult<()> {
    if !of.iter().any(|of| is_binary(of.data_type())) {
        return Ok(());
    }
    // A call that fits no signature is reported when all types are resolved.
    let Ok(taken) = fields_with_udf(of, call.func.as_ref()) else { return Ok(()) };
    let is_text = of
        .iter()
        .zip(&taken)
        .any(|(of, to)| is_binary(of.data_type()) && to.data_type().is_string());
    match is_text {
        true => Err(no_function_error(call.func.name(), of.iter().map(|of| of.data_type()))),
        false => Ok(()),
    }
}

/// Refuses bytes as an operand of LIKE.
///
/// # Errors
/// [`Error::Usage`].
pub(crate) fn refuse_bytes_in_like(like: &Like, schema: &DFSchema) -> PlanResult<()> {
    let sides = [like.expr.get_type(schema), like.pattern.get_type(schema)];
    let [Ok(value), Ok(pattern)] = sides else { return Ok(()) };
    if !is_binary(&value) && !is_binary(&pattern) {
        return Ok(());
    }
    let word = if like.case_insensitive { "ILIKE" } else { "LIKE" };
    Err(into_datafusion_error(Error::usage_with_hint(
        format!("there is no `{} {word} {}`", sql_type_name(&value), sql_type_name(&pattern)),
        "CAST(x AS TEXT) has bytes of UTF-8 as text; hex(x) has the digits of any",
    )))
}

/// Refuses bytes as an argument of an aggregate that takes text.
///
/// # Errors
/// [`Error::Usage`].
pub(crate) fn refuse_bytes_in_string_agg(
    name: &str,
    args: &[Expr],
    schema: &DFSchema,
) -> PlanResult<()> {
    if name != aggregates::STRING_AGG {
        return Ok(());
    }
    let types = args.iter().map(|arg| arg.get_type(schema));
    let Ok(types) = types.collect::<PlanResult<Vec<DataType>>>() else { return Ok(()) };
    match types.iter().any(is_binary) {
        true => Err(no_function_error(name, types.iter())),
        false => Ok(()),
    }
}

fn no_function_error<'a>(
    name: &str,
    types: impl Iterator<Item = &'a DataType>,
) -> datafusion::error::DataFusionError {
    let types: Vec<String> = types.map(sql_type_name).collect();
    into_datafusion_error(Error::usage_with_hint(
        format!("there is no `{name}({})`", types.join(", ")),
        "CAST(x AS TEXT) has bytes of UTF-8 as text; hex(x) has the digits of any",
    ))
}

/// Plans lists of binary values with different layouts, or of binary values and nulls, for which DataFusion
/// finds no type.
#[derive(Debug)]
pub(crate) struct BinaryListPlanner;

impl ExprPlanner for BinaryListPlanner {
    fn plan_array_literal(
        &self,
        exprs: Vec<Expr>,
        schema: &DFSchema,
    ) -> PlanResult<PlannerResult<Vec<Expr>>> {
        let types = exprs.iter().map(|expr| expr.get_type(schema));
        let Ok(types) = types.collect::<PlanResult<Vec<DataType>>>() else {
            return Ok(PlannerResult::Original(exprs));
        };
        let Some(to) = common_binary_type(&types) else {
            return Ok(PlannerResult::Original(exprs));
        };
        let items = exprs.into_iter().zip(types).map(|(expr, of)| match of == to {
            true => expr,
            false => Expr::Cast(Cast::new(Box::new(expr), to.clone())),
        });
        Ok(PlannerResult::Planned(make_array_udf().call(items.collect())))
    }
}

/// `octet_length` and `bit_length`, extended to bytes.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct BinaryLengthUdf {
    inner: Arc<ScalarUDF>,
    signature: Signature,
}

/// Returns the signature of a function, extended by a single binary argument.
pub(crate) fn with_binary_signature(theirs: TypeSignature) -> Vec<TypeSignature> {
    let of_bytes = TypeSignature::Coercible(vec![Coercion::new_exact(TypeSignatureClass::Binary)]);
    vec![theirs, of_bytes]
}

impl BinaryLengthUdf {
    pub(crate) fn new(theirs: Arc<ScalarUDF>) -> Self {
        BinaryLengthUdf { inner: theirs, signature: Signature::user_defined(Volatility::Immutable) }
    }
}

/// Returns the length of each value in bytes or bits.
///
/// # Errors
/// Those of Arrow's casts.
pub(crate) fn binary_length(args: &ScalarFunctionArgs, in_bits: bool) -> PlanResult<ColumnarValue> {
    invoke_unary_function(&args.args, |values: &ArrayRef| {
        let counts = match in_bits {
            true => bit_length(values)?,
            false => length(values)?,
        };
        Ok(cast_with_options(&counts, &DataType::Int64, &STRICT_CAST_OPTIONS)?)
    })
}

impl ScalarUDFImpl for BinaryLengthUdf {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> PlanResult<Vec<DataType>> {
        if let [of] = arguments
            && is_binary(of)
        {
            return Ok(vec![of.clone()]);
        }
        let fields = arguments.iter().map(|of| Arc::new(Field::new("x", of.clone(), true)));
        let fields: Vec<FieldRef> = fields.collect();
        let taken = fields_with_udf(&fields, self.inner.as_ref())?;
        Ok(taken.iter().map(|of| of.data_type().clone()).collect())
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        match arguments {
            [of] if is_binary(of) => Ok(DataType::Int64),
            _ => self.inner.return_type(arguments),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        match args.args.first().is_some_and(|of| is_binary(&of.data_type())) {
            true => binary_length(&args, self.name() == scalars::BIT_LENGTH),
            false => self.inner.invoke_with_args(args),
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_becomes_bytes_of_hex_digits_or_of_letters() {
        for (text, expected) in [
            ("\\x9101", vec![0x91, 0x01]),
            ("\\x", vec![]),
            ("\\xFf", vec![0xff]),
            ("\\x910", b"\\x910".to_vec()),
            ("\\xzz", b"\\xzz".to_vec()),
            ("x91", b"x91".to_vec()),
            ("ä", vec![0xc3, 0xa4]),
        ] {
            assert_eq!(text_to_bytes(text), expected, "{text}");
        }
    }

    #[test]
    fn different_binary_types_coerce_to_view() {
        use DataType::{Binary, BinaryView, FixedSizeBinary, LargeBinary, Null, Utf8};
        for (types, expected) in [
            (vec![Binary, BinaryView], Some(BinaryView)),
            (vec![Null, LargeBinary, Null, Binary], Some(BinaryView)),
            (vec![FixedSizeBinary(2), FixedSizeBinary(3)], Some(BinaryView)),
            (vec![Binary, Null, Binary], Some(Binary)),
            (vec![Binary, Binary], None),
            (vec![Binary, Utf8], None),
            (vec![Null], None),
            (vec![], None),
        ] {
            assert_eq!(common_binary_type(&types), expected, "{types:?}");
        }
    }
}
