//! DataFusion's walks over expressions and plans, with closures behind `dyn`.
//!
//! `TreeNode::transform_up` and similar methods are generic in the closure. Each call with its own closure
//! compiles the walk over all kinds of expressions and plans once more, which was a third of the code of
//! crates `dialect`, `operators` and `sql` together. The methods here have DataFusion's names with the suffix `_dyn`; a walk costs one more
//! indirect call for each node.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;

/// [`TreeNode`] without type parameters.
pub trait DynTreeNode: Sized {
    /// Rewrites a tree, children first.
    ///
    /// # Errors
    /// Returns the error of `f`, and DataFusion's error for children that do not fit.
    fn transform_up_dyn(
        self,
        f: &mut dyn FnMut(Self) -> Result<Transformed<Self>>,
    ) -> Result<Transformed<Self>>;

    /// Rewrites a tree, parents first.
    ///
    /// # Errors
    /// See [`transform_up_dyn`](Self::transform_up_dyn).
    fn transform_down_dyn(
        self,
        f: &mut dyn FnMut(Self) -> Result<Transformed<Self>>,
    ) -> Result<Transformed<Self>>;

    /// Visits a tree, parents first.
    ///
    /// # Errors
    /// Returns the error of `f`.
    fn apply_dyn<'n>(
        &'n self,
        f: &mut dyn FnMut(&'n Self) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion>;

    /// Returns whether `f` is true for any node of the tree.
    ///
    /// # Errors
    /// Returns the error of `f`.
    fn exists_dyn(&self, f: &mut dyn FnMut(&Self) -> Result<bool>) -> Result<bool>;
}

macro_rules! dyn_tree_node {
    ($($node:ty),* $(,)?) => {
        $(impl DynTreeNode for $node {
            fn transform_up_dyn(
                self,
                f: &mut dyn FnMut(Self) -> Result<Transformed<Self>>,
            ) -> Result<Transformed<Self>> {
                self.transform_up(f)
            }

            fn transform_down_dyn(
                self,
                f: &mut dyn FnMut(Self) -> Result<Transformed<Self>>,
            ) -> Result<Transformed<Self>> {
                self.transform_down(f)
            }

            fn apply_dyn<'n>(
                &'n self,
                f: &mut dyn FnMut(&'n Self) -> Result<TreeNodeRecursion>,
            ) -> Result<TreeNodeRecursion> {
                self.apply(f)
            }

            fn exists_dyn(&self, f: &mut dyn FnMut(&Self) -> Result<bool>) -> Result<bool> {
                self.exists(f)
            }
        })*
    };
}

dyn_tree_node!(Expr, LogicalPlan, Arc<dyn ExecutionPlan>, Arc<dyn PhysicalExpr>);

/// Methods of [`LogicalPlan`] without type parameters.
pub trait DynLogicalPlan: Sized {
    /// Visits a plan and the plans of its subqueries, parents first.
    ///
    /// # Errors
    /// Returns the error of `f`.
    fn apply_with_subqueries_dyn(
        &self,
        f: &mut dyn FnMut(&Self) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion>;

    /// Rewrites a plan and the plans of its subqueries, children first.
    ///
    /// # Errors
    /// Returns the error of `f`, and DataFusion's error for children that do not fit.
    fn transform_up_with_subqueries_dyn(
        self,
        f: &mut dyn FnMut(Self) -> Result<Transformed<Self>>,
    ) -> Result<Transformed<Self>>;

    /// Visits the expressions of a node, without their children.
    ///
    /// # Errors
    /// Returns the error of `f`.
    fn apply_expressions_dyn(
        &self,
        f: &mut dyn FnMut(&Expr) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion>;

    /// Rewrites the expressions of a node, without their children.
    ///
    /// # Errors
    /// Returns the error of `f`.
    fn map_expressions_dyn(
        self,
        f: &mut dyn FnMut(Expr) -> Result<Transformed<Expr>>,
    ) -> Result<Transformed<Self>>;
}

impl DynLogicalPlan for LogicalPlan {
    fn apply_with_subqueries_dyn(
        &self,
        f: &mut dyn FnMut(&Self) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.apply_with_subqueries(f)
    }

    fn transform_up_with_subqueries_dyn(
        self,
        f: &mut dyn FnMut(Self) -> Result<Transformed<Self>>,
    ) -> Result<Transformed<Self>> {
        self.transform_up_with_subqueries(f)
    }

    fn apply_expressions_dyn(
        &self,
        f: &mut dyn FnMut(&Expr) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.apply_expressions(f)
    }

    fn map_expressions_dyn(
        self,
        f: &mut dyn FnMut(Expr) -> Result<Transformed<Expr>>,
    ) -> Result<Transformed<Self>> {
        self.map_expressions(f)
    }
}
