//! Replacements of DataFusion functions of the same names, whose own results lose values or whose plans fail.

use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, AsArray, Float64Array};
use arrow::compute::cast_with_options;
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type, Int64Type};
use datafusion::common::{DFSchema, Result as PlanResult, ScalarValue, plan_err};
use datafusion::functions::{core, math, string, unicode};
use datafusion::functions_nested::length::array_length_udf;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ArrayFunctionArgument, ArrayFunctionSignature, ColumnarValue, Documentation, Expr,
    ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    TypeSignature, Volatility,
};
use tidemill_base::column_types::STRICT_CAST_OPTIONS;

use crate::bytea::{
    BinaryLengthUdf, binary_length, common_binary_type, is_binary, with_binary_signature,
};
use tidemill_planning::datafusion_names::scalars;

/// Returns all replacement functions.
pub(crate) fn replacement_functions() -> impl Iterator<Item = ScalarUDF> {
    [
        ScalarUDF::from(NvlFunction::new()),
        ScalarUDF::from(CoalesceFunction { datafusion_function: core::coalesce() }),
        ScalarUDF::from(ConcatFunction { datafusion_function: string::concat() }),
        ScalarUDF::from(LengthFunction::new()),
        ScalarUDF::from(BinaryLengthUdf::new(string::octet_length())),
        ScalarUDF::from(BinaryLengthUdf::new(string::bit_length())),
        ScalarUDF::from(RoundFunction { datafusion_function: math::round(), return_type: None }),
        ScalarUDF::from(RoundFunction { datafusion_function: math::trunc(), return_type: None }),
    ]
    .into_iter()
}

/// `nvl`, with the alias `ifnull`: `coalesce` of two values of any type. DataFusion's takes the first of
/// a list of types that both arguments fit into, which is FLOAT for integers.
#[derive(Debug, PartialEq, Eq, Hash)]
struct NvlFunction {
    coalesce: Arc<ScalarUDF>,
    signature: Signature,
    aliases: Vec<String>,
}

impl NvlFunction {
    fn new() -> Self {
        NvlFunction {
            coalesce: core::coalesce(),
            signature: Signature::user_defined(Volatility::Immutable),
            aliases: vec!["ifnull".into()],
        }
    }
}

impl ScalarUDFImpl for NvlFunction {
    fn name(&self) -> &str {
        scalars::NVL
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> PlanResult<Vec<DataType>> {
        match arguments {
            [_, _] => coalesce_argument_types(&self.coalesce, arguments),
            _ => plan_err!("`nvl` is called as nvl(x, otherwise)"),
        }
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        self.coalesce.return_type(arguments)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> PlanResult<FieldRef> {
        self.coalesce.return_field_from_args(args)
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> PlanResult<ExprSimplifyResult> {
        self.coalesce.inner().simplify(args, info)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        self.coalesce.invoke_with_args(args)
    }

    fn conditional_arguments<'a>(
        &self,
        args: &'a [Expr],
    ) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.coalesce.inner().conditional_arguments(args)
    }

    fn short_circuits(&self) -> bool {
        self.coalesce.short_circuits()
    }

    fn documentation(&self) -> Option<&Documentation> {
        static THEIRS: LazyLock<Arc<ScalarUDF>> = LazyLock::new(core::nvl);
        THEIRS.documentation()
    }
}

/// Returns the types to which the arguments of `coalesce` are cast. DataFusion finds no common type for bytes of
/// different Arrow types, nor for bytes and nulls.
fn coalesce_argument_types(
    coalesce: &ScalarUDF,
    arguments: &[DataType],
) -> PlanResult<Vec<DataType>> {
    match common_binary_type(arguments) {
        Some(to) => Ok(vec![to; arguments.len()]),
        None => coalesce.coerce_types(arguments),
    }
}

/// `coalesce`, which also accepts all types of bytes.
#[derive(Debug, PartialEq, Eq, Hash)]
struct CoalesceFunction {
    datafusion_function: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for CoalesceFunction {
    fn name(&self) -> &str {
        self.datafusion_function.name()
    }

    fn signature(&self) -> &Signature {
        self.datafusion_function.signature()
    }

    fn coerce_types(&self, arguments: &[DataType]) -> PlanResult<Vec<DataType>> {
        coalesce_argument_types(&self.datafusion_function, arguments)
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        self.datafusion_function.return_type(arguments)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> PlanResult<FieldRef> {
        self.datafusion_function.return_field_from_args(args)
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> PlanResult<ExprSimplifyResult> {
        self.datafusion_function.inner().simplify(args, info)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        self.datafusion_function.invoke_with_args(args)
    }

    fn conditional_arguments<'a>(
        &self,
        args: &'a [Expr],
    ) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.datafusion_function.inner().conditional_arguments(args)
    }

    fn short_circuits(&self) -> bool {
        self.datafusion_function.short_circuits()
    }

    fn documentation(&self) -> Option<&Documentation> {
        static THEIRS: LazyLock<Arc<ScalarUDF>> = LazyLock::new(core::coalesce);
        THEIRS.documentation()
    }
}

/// `concat`. DataFusion's drops empty literals before evaluation; if all arguments are empty
/// literals, it produces a call without arguments, which is an error.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ConcatFunction {
    datafusion_function: Arc<ScalarUDF>,
}

fn is_empty_literal(argument: &Expr) -> bool {
    let Expr::Literal(value, _) = argument else { return false };
    value.is_null() || value.try_as_str().flatten().is_some_and(str::is_empty)
}

impl ScalarUDFImpl for ConcatFunction {
    fn name(&self) -> &str {
        self.datafusion_function.name()
    }

    fn signature(&self) -> &Signature {
        self.datafusion_function.signature()
    }

    fn coerce_types(&self, arguments: &[DataType]) -> PlanResult<Vec<DataType>> {
        self.datafusion_function.coerce_types(arguments)
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        self.datafusion_function.return_type(arguments)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> PlanResult<FieldRef> {
        self.datafusion_function.return_field_from_args(args)
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> PlanResult<ExprSimplifyResult> {
        if args.iter().all(is_empty_literal) {
            let types = args.iter().map(|argument| info.get_data_type(argument));
            let answer = self.return_type(&types.collect::<PlanResult<Vec<_>>>()?)?;
            let text = ScalarValue::from("").cast_to(&answer)?;
            return Ok(ExprSimplifyResult::Simplified(Expr::Literal(text, None)));
        }
        self.datafusion_function.inner().simplify(args, info)
    }

    fn preserves_lex_ordering(&self, inputs: &[ExprProperties]) -> PlanResult<bool> {
        self.datafusion_function.inner().preserves_lex_ordering(inputs)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        self.datafusion_function.invoke_with_args(args)
    }

    fn documentation(&self) -> Option<&Documentation> {
        static THEIRS: LazyLock<Arc<ScalarUDF>> = LazyLock::new(string::concat);
        THEIRS.documentation()
    }
}

/// Returns `array_length` with the result type BIGINT.
pub(crate) fn array_length() -> Arc<ScalarUDF> {
    static LENGTH: LazyLock<Arc<ScalarUDF>> =
        LazyLock::new(|| Arc::new(tidemill_functions::signed_length_function(array_length_udf())));
    Arc::clone(&LENGTH)
}

/// `length`, which also accepts lists and bytes. DataFusion's casts its argument to text, which fails for a list of
/// structs and for most bytes.
#[derive(Debug, PartialEq, Eq, Hash)]
struct LengthFunction {
    datafusion_function: Arc<ScalarUDF>,
    signature: Signature,
    aliases: Vec<String>,
}

impl LengthFunction {
    fn new() -> Self {
        let theirs = unicode::character_length();
        let of_list = TypeSignature::ArraySignature(ArrayFunctionSignature::Array {
            arguments: vec![ArrayFunctionArgument::Array],
            array_coercion: None,
        });
        let of_text = theirs.signature().type_signature.clone();
        let all = std::iter::once(of_list).chain(with_binary_signature(of_text)).collect();
        let signature = Signature::one_of(all, Volatility::Immutable);
        let aliases = theirs.aliases().to_vec();
        LengthFunction { datafusion_function: theirs, signature, aliases }
    }

    fn list_function(of: &DataType) -> Option<Arc<ScalarUDF>> {
        use DataType::{FixedSizeList, LargeList, List};
        matches!(of, List(_) | LargeList(_) | FixedSizeList(_, _)).then(array_length)
    }
}

impl ScalarUDFImpl for LengthFunction {
    fn name(&self) -> &str {
        self.datafusion_function.name()
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        match arguments.first().and_then(Self::list_function) {
            Some(function) => function.return_type(arguments),
            None if arguments == [DataType::Null] => Ok(DataType::Int32),
            None if arguments.first().is_some_and(is_binary) => Ok(DataType::Int64),
            None => self.datafusion_function.return_type(arguments),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        match args.args.first().and_then(|of| Self::list_function(&of.data_type())) {
            Some(function) => function.invoke_with_args(args),
            // DataFusion's handles only texts, not an untyped null.
            None if args.args.first().is_some_and(|of| of.data_type().is_null()) => {
                Ok(ColumnarValue::Scalar(ScalarValue::Int32(None)))
            }
            None if args.args.first().is_some_and(|of| is_binary(&of.data_type())) => {
                binary_length(&args, false)
            }
            None => self.datafusion_function.invoke_with_args(args),
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        static THEIRS: LazyLock<Arc<ScalarUDF>> = LazyLock::new(unicode::character_length);
        THEIRS.documentation()
    }
}

/// `round` and `trunc` to decimal places. DataFusion's multiplies a float by a power of ten and
/// divides it again: a number too large for that becomes infinite or NaN, and a number without fraction
/// changes.
#[derive(Debug, PartialEq, Eq, Hash)]
struct RoundFunction {
    datafusion_function: Arc<ScalarUDF>,
    /// The result type, once types are settled. DataFusion's depends on whether the number of places is a literal;
    /// a cast of a literal becomes one only later.
    return_type: Option<DataType>,
}

/// Fixes the return type of a `round` or `trunc` call, unless it is fixed already.
pub(crate) fn fix_round_return_type(
    call: &ScalarFunction,
    schema: &DFSchema,
) -> PlanResult<Option<ScalarFunction>> {
    match call.func.inner().downcast_ref::<RoundFunction>() {
        Some(RoundFunction { datafusion_function: theirs, return_type: None }) => {
            let answer = Some(Expr::ScalarFunction(call.clone()).get_type(schema)?);
            let function = ScalarUDF::from(RoundFunction {
                datafusion_function: Arc::clone(theirs),
                return_type: answer,
            });
            Ok(Some(ScalarFunction::new_udf(Arc::new(function), call.args.clone())))
        }
        _ => Ok(None),
    }
}

/// Limits decimal places to a range beyond that of any number.
fn clamp_decimal_places(places: i64) -> i64 {
    places.clamp(-1000, 1000)
}

impl ScalarUDFImpl for RoundFunction {
    fn name(&self) -> &str {
        self.datafusion_function.name()
    }

    fn signature(&self) -> &Signature {
        self.datafusion_function.signature()
    }

    fn is_strict(&self) -> bool {
        self.datafusion_function.inner().is_strict()
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        self.datafusion_function.return_type(arguments)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> PlanResult<FieldRef> {
        let theirs = self.datafusion_function.return_field_from_args(args)?;
        Ok(match &self.return_type {
            Some(answer) => Arc::new(Field::clone(&theirs).with_data_type(answer.clone())),
            None => theirs,
        })
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> PlanResult<ExprSimplifyResult> {
        self.datafusion_function.inner().simplify(args, info)
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> PlanResult<SortProperties> {
        self.datafusion_function.output_ordering(inputs)
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let rows = args.number_rows;
        if let Some(places) = args.args.get_mut(1).filter(|of| of.data_type() == DataType::Int64) {
            // DataFusion truncates the number of places to its low 32 bits.
            *places = match &*places {
                ColumnarValue::Scalar(ScalarValue::Int64(Some(places))) => {
                    ColumnarValue::Scalar(ScalarValue::from(clamp_decimal_places(*places)))
                }
                ColumnarValue::Array(places) => {
                    let places = places.as_primitive::<Int64Type>();
                    ColumnarValue::Array(Arc::new(
                        places.unary::<_, Int64Type>(clamp_decimal_places),
                    ))
                }
                other => other.clone(),
            };
        }
        let given = args.args.clone();
        let found = self.datafusion_function.invoke_with_args(args)?;
        let [values, places] = given.as_slice() else { return Ok(found) };
        // The size from which a float has no fraction.
        let whole = match found.data_type() {
            DataType::Float64 => 2.0_f64.powi(52),
            DataType::Float32 => 2.0_f64.powi(23),
            _ => return Ok(found),
        };
        let all = [values, places, &found];
        let is_scalar = all.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { rows };
        let as_floats = |value: &ColumnarValue| -> PlanResult<ArrayRef> {
            Ok(cast_with_options(&value.to_array(rows)?, &DataType::Float64, &STRICT_CAST_OPTIONS)?)
        };
        let (values, places, rounded) =
            (as_floats(values)?, as_floats(places)?, as_floats(&found)?);
        let each = values
            .as_primitive::<Float64Type>()
            .iter()
            .zip(places.as_primitive::<Float64Type>())
            .zip(rounded.as_primitive::<Float64Type>());
        let right = each.map(|((value, places), rounded)| {
            let (value, places, rounded) = (value?, places?, rounded?);
            Some(match places >= 0.0 {
                true if value.abs() >= whole || (value.is_finite() && !rounded.is_finite()) => {
                    value
                }
                false if value.is_finite() && !rounded.is_finite() => 0.0_f64.copysign(value),
                _ => rounded,
            })
        });
        let right: ArrayRef = Arc::new(right.collect::<Float64Array>());
        let right = cast_with_options(&right, &found.data_type(), &STRICT_CAST_OPTIONS)?;
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&right, 0)?),
            false => ColumnarValue::Array(right),
        })
    }

    fn documentation(&self) -> Option<&Documentation> {
        static ROUND: LazyLock<Arc<ScalarUDF>> = LazyLock::new(math::round);
        static TRUNC: LazyLock<Arc<ScalarUDF>> = LazyLock::new(math::trunc);
        match self.name() {
            scalars::TRUNC => TRUNC.documentation(),
            _ => ROUND.documentation(),
        }
    }
}
