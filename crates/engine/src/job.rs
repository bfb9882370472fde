//! The job definition: what a job file, the command line and Python all say.
