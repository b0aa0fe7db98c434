// Package fabric measures a transport of package fabric directly, as ib_read_lat,
// ib_write_lat and ib_read_bw measure RDMA verbs: one queue pair, one goroutine, a
// number of operations in flight, random addresses of one region.
//
// The other side ([Serve]) lends the region and takes no part in one-sided
// operations. A message is one WriteImm there and one back: the cost of a batch of requests
// and its responses without their contents.
package fabric
