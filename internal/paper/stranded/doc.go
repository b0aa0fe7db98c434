// Package stranded computes from a trace of VMs how much memory of a cluster is stranded:
// unallocated memory on servers whose cores are all allocated (2.1).
//
// A trace is a table of VMs in the schema of the Azure public data set (vmtable.csv). It does
// not name servers, so [Simulate] places each VM on the server with the fewest free cores that
// has room for it; clouds place VMs so to keep large gaps for large VMs. [Generate] makes a
// synthetic trace from a seed. It models no particular cloud.
package stranded
