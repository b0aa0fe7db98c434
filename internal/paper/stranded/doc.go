// Package stranded works out how much memory of a cluster nobody can use, from a trace
// of its VMs: memory that is not allocated on servers whose cores all are (2.1).
//
// A trace is a table of VMs in the schema of the Azure public data set (vmtable.csv).
// It does not say on which servers the VMs ran, so [Simulate] places them: each on the
// server with the fewest free cores that it fits on, which is how clouds keep large
// gaps for large VMs. [Generate] makes a trace where there is none: it is synthetic, of
// a seed, and made to resemble no cloud in particular.
package stranded
