//! Arithmetic of integers and decimals that fails if a result does not fit its type.
//!
//! DataFusion's operators wrap around, both in evaluation and in constant folding: `p * q` of two INTs is
//! 1705032704 instead of 6000000000. Once the types of a plan are settled, a rule therefore replaces `+`,
//! `-`, `*`, `/`, `<<`, `>>`, the unary minus and `abs` over integers and decimals by functions of ours
//! ([`CheckedOperation`]). Every path evaluates these functions, and so does constant folding. They use the
//! operators' names, so that columns keep their names.
//!
//! `/` of two integers is their quotient as a DOUBLE, as in DuckDB, Spark, ClickHouse and pandas, so that a
//! ratio such as `errors / hits` is not silently 0. [`DivisionPlanner`] plans it while the statement is
//! planned, because the surrounding expressions depend on its type. `//` and `DIV` are integer divisions. The
//! remainder of an integer and a literal such as `2.0` is computed on integers, and is a DOUBLE.
//!
//! A batch is computed without overflow checks per row. One bit says whether any row overflowed, and only
//! then the row is searched. Null rows do not count.

use std::hash::{Hash, Hasher};
use std::ops::BitOr;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, Datum, Decimal128Array, Decimal256Array,
    PrimitiveArray,
};
use arrow::buffer::NullBuffer;
use arrow::compute::kernels::numeric;
use arrow::datatypes::{
    DataType, Decimal128Type, Field, FieldRef, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, IntervalUnit, UInt8Type, UInt16Type, UInt32Type, UInt64Type, i256,
};
use arrow::error::ArrowError;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, Result as PlanResult, ScalarValue};
use datafusion::logical_expr::binary::BinaryTypeCoercer;
use datafusion::logical_expr::expr::{Cast, ScalarFunction};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::sql::sqlparser::ast::BinaryOperator;
use tidemill_base::column_types::sql_type_name;
use tidemill_base::error::Error;
use tidemill_planning::DynTreeNode;

use crate::{interval_parts, numeric_conversions, replacement_functions};
use tidemill_dialect::column_names;
use tidemill_dialect::error_translation::into_datafusion_error;
use tidemill_planning::datafusion_names::scalars;
use tidemill_planning::plan_rewriting::rewrite_all_expressions;

/// A checked operator or function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ArithmeticOperation {
    Add,
    Subtract,
    Multiply,
    /// Integer division for integers; division to decimal places for decimals.
    Divide,
    /// Division of integers as a DOUBLE.
    DivideAsDouble,
    ShiftLeft,
    ShiftRight,
    Negate,
    Abs,
}

impl ArithmeticOperation {
    /// Returns the column name of the operation, which is that of the operator's own expression.
    fn column_name(self, args: &[Expr]) -> String {
        let names: Vec<String> = args.iter().map(|arg| arg.schema_name().to_string()).collect();
        match (self.operator(), names.as_slice()) {
            (Some(operator), [left, right]) => format!("{left} {operator} {right}"),
            (None, [value]) if self == ArithmeticOperation::Negate => format!("(- {value})"),
            (_, names) => format!("{}({})", self.name(), names.join(",")),
        }
    }

    fn from_operator(operator: Operator) -> Option<Self> {
        Some(match operator {
            Operator::Plus => ArithmeticOperation::Add,
            Operator::Minus => ArithmeticOperation::Subtract,
            Operator::Multiply => ArithmeticOperation::Multiply,
            Operator::Divide => ArithmeticOperation::Divide,
            Operator::BitwiseShiftLeft => ArithmeticOperation::ShiftLeft,
            Operator::BitwiseShiftRight => ArithmeticOperation::ShiftRight,
            _ => return None,
        })
    }

    /// Returns the binary operator; `None` for unary operations.
    fn operator(self) -> Option<Operator> {
        Some(match self {
            ArithmeticOperation::Add => Operator::Plus,
            ArithmeticOperation::Subtract => Operator::Minus,
            ArithmeticOperation::Multiply => Operator::Multiply,
            ArithmeticOperation::Divide | ArithmeticOperation::DivideAsDouble => Operator::Divide,
            ArithmeticOperation::ShiftLeft => Operator::BitwiseShiftLeft,
            ArithmeticOperation::ShiftRight => Operator::BitwiseShiftRight,
            ArithmeticOperation::Negate | ArithmeticOperation::Abs => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            ArithmeticOperation::Add => "add",
            ArithmeticOperation::Subtract => "subtract",
            ArithmeticOperation::Multiply => "multiply",
            ArithmeticOperation::Divide => "divide",
            ArithmeticOperation::DivideAsDouble => "quotient",
            ArithmeticOperation::ShiftLeft => "shift_left",
            ArithmeticOperation::ShiftRight => "shift_right",
            ArithmeticOperation::Negate => "negate",
            ArithmeticOperation::Abs => "abs",
        }
    }

    fn is_shift(self) -> bool {
        matches!(self, ArithmeticOperation::ShiftLeft | ArithmeticOperation::ShiftRight)
    }

    /// Returns the operation on these values as SQL text.
    fn to_sql(self, left: &str, right: &str) -> String {
        match (self, self.operator()) {
            (_, Some(operator)) => format!("{left} {operator} {right}"),
            (ArithmeticOperation::Abs, None) => format!("abs({left})"),
            (_, None) => format!("-({left})"),
        }
    }
}

/// A function that evaluates a checked operation.
#[derive(Debug)]
struct CheckedOperation {
    operation: ArithmeticOperation,
    signature: Signature,
    /// The expression in messages. Expressions that differ only in this text are equal.
    sql_text: String,
    /// The column name of the expression. Plans ask for it at every operator and level, so it is stored:
    /// building it each time would take time cubic in the depth of the expression.
    column_name: String,
    /// The type of the result.
    result_type: DataType,
}

impl PartialEq for CheckedOperation {
    fn eq(&self, other: &Self) -> bool {
        self.operation == other.operation
    }
}

impl Eq for CheckedOperation {}

impl Hash for CheckedOperation {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.operation.hash(state);
    }
}

impl CheckedOperation {
    fn call_expr(operation: ArithmeticOperation, args: Vec<Expr>, answer: DataType) -> Expr {
        let texts: Vec<String> = args.iter().map(expr_text).collect();
        let empty = String::new();
        let text =
            operation.to_sql(texts.first().unwrap_or(&empty), texts.get(1).unwrap_or(&empty));
        let name = operation.column_name(&args);
        let signature = Signature::any(args.len(), Volatility::Immutable);
        let function = CheckedOperation {
            operation,
            signature,
            sql_text: text,
            column_name: name,
            result_type: answer,
        };
        let function = Arc::new(ScalarUDF::from(function));
        Expr::ScalarFunction(ScalarFunction::new_udf(function, args))
    }

    /// Returns the checked operation if the expression is a call of one.
    fn from_expr(expr: &Expr) -> Option<&CheckedOperation> {
        match expr {
            Expr::ScalarFunction(call) => call.func.inner().downcast_ref(),
            _ => None,
        }
    }

    fn overflow_error(&self, what: &str, left: &str, right: &str, data_type: &DataType) -> Error {
        let own = sql_type_name(data_type);
        let wider = match data_type {
            DataType::Int64 | DataType::UInt64 => "DECIMAL(38, 0)",
            _ if data_type.is_integer() => "BIGINT",
            _ => "DOUBLE",
        };
        let values = self.operation.to_sql(left, right);
        let text = column_names::plan_text_to_sql(&self.sql_text);
        let place = match values == text {
            true => String::new(),
            false => format!(", in `{text}`"),
        };
        Error::Overflow {
            message: format!("{what} overflow: {values} does not fit {own}{place}"),
            hint: Some(format!("calculate in a wider type: CAST(x AS {wider})")),
        }
    }
}

/// Returns the text of an expression without table names, which are paths.
fn expr_text(expr: &Expr) -> String {
    if let Some(ours) = CheckedOperation::from_expr(expr) {
        return ours.sql_text.clone();
    }
    let short = expr.clone().transform_up_dyn(&mut |expr| match expr {
        Expr::Column(column) => {
            Ok(Transformed::yes(Expr::Column(Column::new_unqualified(column.name))))
        }
        other => Ok(Transformed::no(other)),
    });
    let short = short.map_or_else(|_| expr.clone(), |short| short.data);
    match &short {
        Expr::Literal(value, _) => value.to_string(),
        other => other.schema_name().to_string(),
    }
}

impl ScalarUDFImpl for CheckedOperation {
    fn name(&self) -> &str {
        self.operation.name()
    }

    fn schema_name(&self, _: &[Expr]) -> PlanResult<String> {
        Ok(self.column_name.clone())
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        match (self.operation.operator(), arguments) {
            _ if self.operation == ArithmeticOperation::DivideAsDouble => Ok(DataType::Float64),
            (Some(operator), [left, right]) => {
                BinaryTypeCoercer::new(left, &operator, right).get_result_type()
            }
            (_, [value, ..]) => Ok(value.clone()),
            _ => {
                Err(into_datafusion_error(Error::Internal("an operation without arguments".into())))
            }
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> PlanResult<FieldRef> {
        let types: Vec<DataType> =
            args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), self.return_type(&types)?, nullable)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let answer = args.return_field.data_type();
        let all_scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let found = match args.args.as_slice() {
            [value] => self.evaluate_unary(value, answer)?,
            [left, right] => self.evaluate_binary(left, right, answer)?,
            _ => {
                return Err(into_datafusion_error(Error::Internal(
                    "an operation without arguments".into(),
                )));
            }
        };
        match all_scalar {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&found, 0)?)),
            false if found.len() == args.number_rows => Ok(ColumnarValue::Array(found)),
            // One operand was a constant NULL.
            false => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&found, 0)?)),
        }
    }
}

/// The values of an operand: one value per row, or one constant.
enum OperandValues<'a, T: ArrowPrimitiveType> {
    PerRow(&'a PrimitiveArray<T>),
    Constant(T::Native),
}

impl<T: ArrowPrimitiveType> OperandValues<'_, T> {
    fn value(&self, row: usize) -> T::Native {
        match self {
            OperandValues::PerRow(array) => array.value(row),
            OperandValues::Constant(value) => *value,
        }
    }
}

/// Returns the results of `operation`, which sets bits other than zero where its result does not fit.
///
/// # Errors
/// The first pair of values, neither of them null, whose result does not fit.
fn calculate<T: ArrowPrimitiveType, F: Copy + Default + PartialEq + BitOr<Output = F>>(
    left: &OperandValues<'_, T>,
    right: &OperandValues<'_, T>,
    operation: impl Fn(T::Native, T::Native) -> (T::Native, F),
) -> Result<PrimitiveArray<T>, (T::Native, T::Native)> {
    let mut failed = F::default();
    // A loop without branches, which the compiler can vectorize.
    macro_rules! pass {
        ($pairs:expr, $count:expr) => {{
            let mut values = vec![T::Native::default(); $count];
            for (value, (left, right)) in values.iter_mut().zip($pairs) {
                let (found, bits) = operation(left, right);
                *value = found;
                failed = failed | bits;
            }
            values
        }};
    }
    let (values, nulls) = match (left, right) {
        (OperandValues::PerRow(left), OperandValues::PerRow(right)) => {
            let pairs = left.values().iter().copied().zip(right.values().iter().copied());
            (pass!(pairs, left.len()), NullBuffer::union(left.nulls(), right.nulls()))
        }
        (OperandValues::PerRow(left), OperandValues::Constant(right)) => {
            let pairs = left.values().iter().map(|left| (*left, *right));
            (pass!(pairs, left.len()), left.nulls().cloned())
        }
        (OperandValues::Constant(left), OperandValues::PerRow(right)) => {
            let pairs = right.values().iter().map(|right| (*left, *right));
            (pass!(pairs, right.len()), right.nulls().cloned())
        }
        (OperandValues::Constant(left), OperandValues::Constant(right)) => {
            (pass!([(*left, *right)], 1), None)
        }
    };
    if failed != F::default() {
        let is_present = |row: &usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(*row));
        let pairs = (0..values.len()).filter(is_present);
        let mut pairs = pairs.map(|row| (left.value(row), right.value(row)));
        if let Some(pair) = pairs.find(|(left, right)| operation(*left, *right).1 != F::default()) {
            return Err(pair);
        }
    }
    Ok(PrimitiveArray::new(values.into(), nulls))
}

/// Integers with operations that also return bits, which are zero where the result fits.
///
/// Not every processor has vector instructions that compare 64-bit integers, so the carry is computed from
/// the highest bits of the operands and the result (*Hacker's Delight*, 2-13).
trait Bits: Sized {
    /// Returns sum and carry.
    fn plus(self, other: Self) -> (Self, u64);
    /// Returns difference and borrow.
    fn minus(self, other: Self) -> (Self, u64);
    /// Returns the product, and nonzero bits if it overflows.
    fn times(self, other: Self) -> (Self, u64);
}

macro_rules! bits {
    ($($own:ty, $unsigned:ty, $wide:ty, $is_signed:literal;)*) => {$(
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        impl Bits for $own {
            fn plus(self, other: Self) -> (Self, u64) {
                let sum = self.wrapping_add(other);
                let carry = match $is_signed {
                    true => (self ^ sum) & (other ^ sum),
                    false => (self & other) | ((self | other) & !sum),
                };
                (sum, (carry as $unsigned >> (Self::BITS - 1)).into())
            }

            fn minus(self, other: Self) -> (Self, u64) {
                let rest = self.wrapping_sub(other);
                let borrow = match $is_signed {
                    true => (self ^ other) & (self ^ rest),
                    false => (!self & other) | ((!self | other) & rest),
                };
                (rest, (borrow as $unsigned >> (Self::BITS - 1)).into())
            }

            fn times(self, other: Self) -> (Self, u64) {
                if Self::BITS == 64 {
                    let (product, failed) = self.overflowing_mul(other);
                    return (product, failed.into());
                }
                let product = <$wide>::from(self) * <$wide>::from(other);
                let own = product as $own;
                (own, (<$wide>::from(own) ^ product) as u64)
            }
        }
    )*};
}

bits! {
    i8, u8, i32, true;
    i16, u16, i32, true;
    i32, u32, i64, true;
    i64, u64, i128, true;
    u8, u8, u32, false;
    u16, u16, u32, false;
    u32, u32, u64, false;
    u64, u64, u128, false;
}

macro_rules! integers {
    ($data_type:expr, $work:ident, $($rest:expr),*; $otherwise:expr) => {
        match $data_type {
            DataType::Int8 => $work!(Int8Type, i8, $($rest),*),
            DataType::Int16 => $work!(Int16Type, i16, $($rest),*),
            DataType::Int32 => $work!(Int32Type, i32, $($rest),*),
            DataType::Int64 => $work!(Int64Type, i64, $($rest),*),
            DataType::UInt8 => $work!(UInt8Type, u8, $($rest),*),
            DataType::UInt16 => $work!(UInt16Type, u16, $($rest),*),
            DataType::UInt32 => $work!(UInt32Type, u32, $($rest),*),
            DataType::UInt64 => $work!(UInt64Type, u64, $($rest),*),
            _ => $otherwise,
        }
    };
}

/// Returns an array of one null.
fn null_array(data_type: &DataType) -> ArrayRef {
    arrow::array::new_null_array(data_type, 1)
}

impl CheckedOperation {
    fn evaluate_unary(&self, value: &ColumnarValue, answer: &DataType) -> PlanResult<ArrayRef> {
        let array = match value {
            ColumnarValue::Array(array) => Arc::clone(array),
            ColumnarValue::Scalar(value) => value.to_array()?,
        };
        macro_rules! unary {
            ($t:ty, $native:ty, $array:expr) => {{
                let values = OperandValues::<$t>::PerRow($array.as_primitive::<$t>());
                let none = OperandValues::<$t>::Constant(0);
                let found = match self.operation {
                    #[allow(unused_comparisons)]
                    ArithmeticOperation::Abs => {
                        calculate(&values, &none, |value, zero: $native| match value < 0 {
                            true => zero.overflowing_sub(value),
                            false => (value, false),
                        })
                    }
                    _ => calculate(&values, &none, |value, zero: $native| {
                        zero.overflowing_sub(value)
                    }),
                };
                found.map(|array| Arc::new(array) as ArrayRef).map_err(|(value, _)| {
                    into_datafusion_error(self.overflow_error(
                        "integer",
                        &value.to_string(),
                        "",
                        answer,
                    ))
                })
            }};
        }
        integers!(array.data_type(), unary, array; match self.operation {
            // The range of decimals is symmetric, so nothing overflows.
            ArithmeticOperation::Abs => Err(into_datafusion_error(Error::Internal("abs of no integer".into()))),
            _ => Ok(numeric::neg(array.as_ref())?),
        })
    }

    fn evaluate_binary(
        &self,
        left: &ColumnarValue,
        right: &ColumnarValue,
        answer: &DataType,
    ) -> PlanResult<ArrayRef> {
        let is_null = |side: &ColumnarValue| match side {
            ColumnarValue::Scalar(value) => value.is_null(),
            ColumnarValue::Array(_) => false,
        };
        if is_null(left) || is_null(right) {
            return Ok(null_array(answer));
        }
        if self.operation == ArithmeticOperation::DivideAsDouble {
            return divide_as_doubles(left, right);
        }
        if self.operation == ArithmeticOperation::Divide || !answer.is_integer() {
            return self.evaluate_with_arrow(left, right, answer);
        }
        let (left, right) = (operand_array(left)?, operand_array(right)?);
        macro_rules! binary {
            ($t:ty, $native:ty, $left:expr, $right:expr) => {{
                let (left, right) = (operand_values::<$t>($left)?, operand_values::<$t>($right)?);
                let found = match self.operation {
                    ArithmeticOperation::Add => calculate(&left, &right, <$native>::plus),
                    ArithmeticOperation::Subtract => calculate(&left, &right, <$native>::minus),
                    ArithmeticOperation::Multiply => calculate(&left, &right, <$native>::times),
                    ArithmeticOperation::ShiftLeft => calculate(&left, &right, |value, by| {
                        match u32::try_from(by).ok().filter(|by| *by < <$native>::BITS) {
                            // Bits that were shifted out make the values differ.
                            Some(by) => (value << by, (value << by) >> by != value),
                            #[allow(unused_comparisons)]
                            None => (0, value != 0 || by < 0),
                        }
                    }),
                    _ => calculate(&left, &right, |value, by| match u32::try_from(by) {
                        Ok(by) if by < <$native>::BITS => (value >> by, false),
                        // All bits are the sign bit then.
                        Ok(_) => ((value >> (<$native>::BITS - 1)) >> 1, false),
                        #[allow(unused_comparisons)]
                        Err(_) => ((value >> (<$native>::BITS - 1)) >> 1, by < 0),
                    }),
                };
                found.map(|array| Arc::new(array) as ArrayRef).map_err(|(left, right)| {
                    let (left, right) = (left.to_string(), right.to_string());
                    into_datafusion_error(self.overflow_error("integer", &left, &right, answer))
                })
            }};
        }
        integers!(answer, binary, &left, &right; {
            Err(into_datafusion_error(Error::Internal(format!("{} of {answer}", self.name()))))
        })
    }

    /// Evaluates operations on decimals, and divisions, with Arrow's kernels. These check everything except
    /// the number of digits of a decimal.
    fn evaluate_with_arrow(
        &self,
        left: &ColumnarValue,
        right: &ColumnarValue,
        answer: &DataType,
    ) -> PlanResult<ArrayRef> {
        let operation = match self.operation {
            ArithmeticOperation::Add => numeric::add,
            ArithmeticOperation::Subtract => numeric::sub,
            ArithmeticOperation::Multiply => numeric::mul,
            _ => numeric::div,
        };
        let (left, right) = (operand_array(left)?, operand_array(right)?);
        let overflow = |found: ArrowError| match found {
            ArrowError::ArithmeticOverflow(_) => {
                into_datafusion_error(self.out_of_range_error(answer))
            }
            other => other.into(),
        };
        let found = operation(left.datum(), right.datum()).map_err(overflow)?;
        let fits = match found.data_type() {
            DataType::Decimal128(precision, _) => found
                .as_any()
                .downcast_ref::<Decimal128Array>()
                .is_none_or(|found| found.validate_decimal_precision(*precision).is_ok()),
            DataType::Decimal256(precision, _) => found
                .as_any()
                .downcast_ref::<Decimal256Array>()
                .is_none_or(|found| found.validate_decimal_precision(*precision).is_ok()),
            _ => true,
        };
        match fits {
            true if self.operation == ArithmeticOperation::Divide => {
                round_quotients(found, &left, &right)
            }
            true => Ok(found),
            false => Err(into_datafusion_error(self.out_of_range_error(answer))),
        }
    }

    /// Returns the error for a result that does not fit, if its operands are unknown.
    fn out_of_range_error(&self, answer: &DataType) -> Error {
        let (what, hint) = match answer.is_integer() {
            true => ("integer", "DECIMAL(38, 0)"),
            false => ("decimal", "DOUBLE"),
        };
        Error::Overflow {
            message: format!(
                "{what} overflow: `{}` does not fit {}",
                self.sql_text,
                sql_type_name(answer)
            ),
            hint: Some(format!("calculate in another type: CAST(x AS {hint})")),
        }
    }
}

/// Rounds quotients of decimals half away from zero, where Arrow truncates. Other quotients are returned
/// unchanged.
fn round_quotients(
    quotients: ArrayRef,
    left: &OperandArray,
    right: &OperandArray,
) -> PlanResult<ArrayRef> {
    let types = [quotients.data_type(), left.data_type(), right.data_type()];
    let [
        DataType::Decimal128(_, places),
        DataType::Decimal128(_, left_places),
        DataType::Decimal128(_, right_places),
    ] = types
    else {
        return Ok(quotients);
    };
    let power = i32::from(*places) - i32::from(*left_places) + i32::from(*right_places);
    let Some(factor) = u32::try_from(power).ok().and_then(|power| 10_i128.checked_pow(power))
    else {
        return Ok(quotients);
    };
    let wide = i256::from_i128;
    let quotient = |dividend: i128, divisor: i128| {
        if divisor == 0 {
            return (0, false);
        }
        // A remainder of half the divisor or more rounds the last place away from zero.
        match dividend.checked_mul(factor).filter(|_| divisor.unsigned_abs() < 1 << 126) {
            Some(dividend) => {
                let (whole, rest) = (dividend / divisor, dividend % divisor);
                let is_more = 2 * rest.unsigned_abs() >= divisor.unsigned_abs();
                let sign = if (dividend < 0) == (divisor < 0) { 1 } else { -1 };
                (whole + if is_more { sign } else { 0 }, false)
            }
            None => {
                let dividend = wide(dividend).wrapping_mul(wide(factor));
                let divisor = wide(divisor);
                let whole = dividend.wrapping_div(divisor);
                let rest = dividend.wrapping_rem(divisor).wrapping_abs();
                let is_more = rest.wrapping_add(rest) >= divisor.wrapping_abs();
                let sign = if dividend.is_negative() == divisor.is_negative() { 1 } else { -1 };
                let made = whole.wrapping_add(wide(if is_more { sign } else { 0 }));
                (made.to_i128().unwrap_or_default(), made.to_i128().is_none())
            }
        }
    };
    let (left, right) =
        (operand_values::<Decimal128Type>(left)?, operand_values::<Decimal128Type>(right)?);
    let rounded: Decimal128Array = calculate(&left, &right, quotient).map_err(|_| {
        into_datafusion_error(Error::Internal("a quotient beyond 38 digits".into()))
    })?;
    Ok(Arc::new(rounded.with_data_type(quotients.data_type().clone())))
}

/// Divides integers of any widths as doubles. A double represents integers up to 2^53 exactly.
fn divide_as_doubles(left: &ColumnarValue, right: &ColumnarValue) -> PlanResult<ArrayRef> {
    let (left, right) =
        (operand_array(left)?.cast_to_doubles()?, operand_array(right)?.cast_to_doubles()?);
    let (left, right) =
        (operand_values::<Float64Type>(&left)?, operand_values::<Float64Type>(&right)?);
    let found = calculate(&left, &right, |dividend, divisor| (dividend / divisor, divisor == 0.0));
    found.map(|array| Arc::new(array) as ArrayRef).map_err(|_| {
        let message = "division by zero\nhint: n / nullif(m, 0) is null where m is 0";
        into_datafusion_error(Error::Query(message.into()))
    })
}

/// The array of an operand; one row if the operand is a constant.
enum OperandArray {
    PerRow(ArrayRef),
    Constant(arrow::array::Scalar<ArrayRef>),
}

impl OperandArray {
    fn datum(&self) -> &dyn Datum {
        match self {
            OperandArray::PerRow(array) => array,
            OperandArray::Constant(scalar) => scalar,
        }
    }

    fn data_type(&self) -> &DataType {
        self.datum().get().0.data_type()
    }

    fn cast_to_doubles(self) -> PlanResult<Self> {
        let cast = |array: &dyn Array| arrow::compute::cast(array, &DataType::Float64);
        Ok(match self {
            OperandArray::PerRow(array) => OperandArray::PerRow(cast(array.as_ref())?),
            OperandArray::Constant(scalar) => OperandArray::Constant(arrow::array::Scalar::new(
                cast(scalar.into_inner().as_ref())?,
            )),
        })
    }
}

fn operand_array(side: &ColumnarValue) -> PlanResult<OperandArray> {
    Ok(match side {
        ColumnarValue::Array(array) => OperandArray::PerRow(Arc::clone(array)),
        ColumnarValue::Scalar(value) => OperandArray::Constant(value.to_scalar()?),
    })
}

fn operand_values<T: ArrowPrimitiveType>(held: &OperandArray) -> PlanResult<OperandValues<'_, T>> {
    let unexpected = || into_datafusion_error(Error::Internal("an operation on two types".into()));
    match held {
        OperandArray::PerRow(array) => {
            array.as_primitive_opt().map(OperandValues::PerRow).ok_or_else(unexpected)
        }
        OperandArray::Constant(scalar) => {
            let array = scalar.get().0.as_primitive_opt::<T>().ok_or_else(unexpected)?;
            Ok(OperandValues::Constant(array.value(0)))
        }
    }
}

/// Plans `/` of two integers, `//`, `DIV`, and `%` of an integer and a whole number with a point.
#[derive(Debug)]
pub(crate) struct DivisionPlanner;

impl ExprPlanner for DivisionPlanner {
    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> PlanResult<PlannerResult<RawBinaryExpr>> {
        let is_integer =
            |side: &Expr| side.get_type(schema).is_ok_and(|data_type| data_type.is_integer());
        Ok(match expr.op {
            BinaryOperator::Divide if is_integer(&expr.left) && is_integer(&expr.right) => {
                let args = vec![expr.left, expr.right];
                let quotient = CheckedOperation::call_expr(
                    ArithmeticOperation::DivideAsDouble,
                    args,
                    DataType::Float64,
                );
                PlannerResult::Planned(quotient)
            }
            BinaryOperator::DuckIntegerDivide => {
                let (left, right) = (Box::new(expr.left), Box::new(expr.right));
                let whole = BinaryExpr::new(left, Operator::Divide, right);
                PlannerResult::Planned(Expr::BinaryExpr(whole))
            }
            BinaryOperator::Modulo if is_integer(&expr.left) => {
                match whole_number_divisor(&expr.right) {
                    Some(divisor) => {
                        let right = Box::new(Expr::Literal(divisor.into(), None));
                        let rest = BinaryExpr::new(Box::new(expr.left), Operator::Modulo, right);
                        let rest = Cast::new(Box::new(Expr::BinaryExpr(rest)), DataType::Float64);
                        PlannerResult::Planned(Expr::Cast(rest))
                    }
                    None => PlannerResult::Original(expr),
                }
            }
            _ => PlannerResult::Original(expr),
        })
    }
}

/// Returns the value of a literal such as `2.0` as an integer; `None` for 0 and for fractions. The remainder
/// of integers is exact, whereas as a DOUBLE it would be rounded beyond 2^53.
fn whole_number_divisor(expr: &Expr) -> Option<i64> {
    /// Whole doubles below this value fit a 64-bit integer.
    const MAX: f64 = 9e18;
    let Expr::Literal(ScalarValue::Float64(Some(divisor)), _) = expr else { return None };
    let is_whole = *divisor != 0.0 && divisor.fract() == 0.0 && divisor.abs() < MAX;
    is_whole.then_some(*divisor as i64)
}

/// Inserts checked operations into plans whose types are settled.
#[derive(Debug)]
pub(crate) struct CheckedArithmeticRule;

impl AnalyzerRule for CheckedArithmeticRule {
    fn name(&self) -> &str {
        "checked_arithmetic"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> PlanResult<LogicalPlan> {
        rewrite_all_expressions(plan, &replace_with_checked_operation)
    }
}

fn is_decimal(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Decimal128(_, _) | DataType::Decimal256(_, _))
}

/// Returns the type of an expression. Checked operations store theirs, which avoids a walk of their operands.
fn expr_type(expr: &Expr, schema: &DFSchema) -> PlanResult<DataType> {
    match CheckedOperation::from_expr(expr) {
        Some(ours) => Ok(ours.result_type.clone()),
        None => expr.get_type(schema),
    }
}

fn replace_with_checked_operation(expr: Expr, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    match expr {
        // Types are settled here, and so are the implicit casts.
        Expr::Cast(Cast { expr, field })
            if matches!(field.data_type(), DataType::Interval(IntervalUnit::MonthDayNano))
                && matches!(expr_type(&expr, schema), Ok(DataType::Duration(_))) =>
        {
            Ok(Transformed::yes(interval_parts::duration_to_interval(*expr)))
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let found = ArithmeticOperation::from_operator(op).and_then(|operation| {
                let one = expr_type(&left, schema).ok()?;
                let other = expr_type(&right, schema).ok()?;
                let is_ours = match one.is_integer() {
                    true => one == other,
                    false => !operation.is_shift() && is_decimal(&one) && is_decimal(&other),
                };
                let coercer = BinaryTypeCoercer::new(&one, &op, &other);
                is_ours.then(|| Some((operation, coercer.get_result_type().ok()?))).flatten()
            });
            Ok(match found {
                Some((operation, answer)) => Transformed::yes(CheckedOperation::call_expr(
                    operation,
                    vec![*left, *right],
                    answer,
                )),
                None => Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })),
            })
        }
        Expr::Cast(cast)
            if cast.field.data_type() == &DataType::Float64
                && expr_type(&cast.expr, schema).is_ok_and(|of| is_decimal(&of)) =>
        {
            Ok(Transformed::yes(numeric_conversions::decimal_to_double(*cast.expr)))
        }
        Expr::ScalarFunction(call) if call.func.name() == scalars::ROUND => {
            Ok(match replacement_functions::fix_round_return_type(&call, schema)? {
                Some(call) => Transformed::yes(Expr::ScalarFunction(call)),
                None => Transformed::no(Expr::ScalarFunction(call)),
            })
        }
        Expr::Negative(value) => {
            let of = expr_type(&value, schema).ok();
            Ok(match of.filter(|of| of.is_integer() || is_decimal(of)) {
                Some(of) => Transformed::yes(CheckedOperation::call_expr(
                    ArithmeticOperation::Negate,
                    vec![*value],
                    of,
                )),
                None => Transformed::no(Expr::Negative(value)),
            })
        }
        Expr::ScalarFunction(call) if call.func.name() == scalars::ABS && call.args.len() == 1 => {
            let is_done = call.func.inner().is::<CheckedOperation>();
            let of = expr_type(&call.args[0], schema).ok();
            Ok(match of.filter(|of| !is_done && of.is_integer()) {
                Some(of) => Transformed::yes(CheckedOperation::call_expr(
                    ArithmeticOperation::Abs,
                    call.args,
                    of,
                )),
                None => Transformed::no(Expr::ScalarFunction(call)),
            })
        }
        other => Ok(Transformed::no(other)),
    }
}
