//! DataFusion's walks over expressions and plans, with closures behind `dyn`.
//!
//! `TreeNode::transform_up` and its like are generic in the closure: each call with a closure of its own compiles the walk over all
//! kinds of expressions and plans once more. That was a third of the code of crate `sql`. These methods have DataFusion's names
//! and a `_dyn`; a walk costs an indirect call for each node more.

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
    /// As `f`, and DataFusion's for children that do not fit.
    fn transform_up_dyn(
        self,
        f: &mut dyn FnMut(Self) -> Result<Transformed<Self>>,
    ) -> Result<Transformed<Self>>;

    /// Rewrites a tree, parents first.
    ///
    /// # Errors
    /// As [`transform_up_dyn`](Self::transform_up_dyn).
    fn transform_down_dyn(
        self,
        f: &mut dyn FnMut(Self) -> Result<Transformed<Self>>,
    ) -> Result<Transformed<Self>>;

    /// Visits a tree, parents first.
    ///
    /// # Errors
    /// As `f`.
    fn apply_dyn<'n>(
        &'n self,
        f: &mut dyn FnMut(&'n Self) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion>;

    /// Returns whether `f` is true of a node.
    ///
    /// # Errors
    /// As `f`.
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
    /// As `f`.
    fn apply_with_subqueries_dyn(
        &self,
        f: &mut dyn FnMut(&Self) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion>;

    /// Rewrites a plan and the plans of its subqueries, children first.
    ///
    /// # Errors
    /// As `f`, and DataFusion's for children that do not fit.
    fn transform_up_with_subqueries_dyn(
        self,
        f: &mut dyn FnMut(Self) -> Result<Transformed<Self>>,
    ) -> Result<Transformed<Self>>;

    /// Visits the expressions of a node, without their children.
    ///
    /// # Errors
    /// As `f`.
    fn apply_expressions_dyn(
        &self,
        f: &mut dyn FnMut(&Expr) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion>;

    /// Rewrites the expressions of a node, without their children.
    ///
    /// # Errors
    /// As `f`.
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
