package redywire

import "fmt"

// Bounds of a configuration, from the paper's table 2. The bound of client threads is a
// constant, because some callers of Check do not know the client's cores.
const (
	MaxClientThreads = 1024
	MaxQueueDepth    = 16      // the NIC's limit
	maxBatchBytes    = 4 << 10 // transfers beyond this size gain nothing (5.1)
	minRecordSize    = 8       // assumed if no record size is known
)

// Configuration is (c, s, b, q) of table 2, as clients and managers check it.
type Configuration struct{ ClientThreads, ServerThreads, BatchSize, QueueDepth int }

// Check refuses invalid configurations (R52 to R57). recordSize is the SLO's; 0: none.
func (c Configuration) Check(recordSize int) error {
	if recordSize <= 0 {
		recordSize = minRecordSize
	}
	most := (maxBatchBytes + recordSize - 1) / recordSize
	switch {
	case c.ClientThreads < 1 || c.ClientThreads > MaxClientThreads:
		return fmt.Errorf("configuration: client_threads %d: want 1 to %d", c.ClientThreads, MaxClientThreads)
	case c.ServerThreads < 0 || c.ServerThreads > c.ClientThreads:
		return fmt.Errorf("configuration: server_threads %d: want 0 to client_threads, which is %d", c.ServerThreads, c.ClientThreads)
	case c.BatchSize < 1 || c.BatchSize > most:
		return fmt.Errorf("configuration: batch_size %d: want 1 to %d, which is 4 KiB in records of %d bytes", c.BatchSize, most, recordSize)
	case c.ServerThreads == 0 && c.BatchSize != 1:
		return fmt.Errorf("configuration: batch_size %d without server_threads: one-sided access has batch_size 1", c.BatchSize)
	case c.QueueDepth < 1 || c.QueueDepth > MaxQueueDepth:
		return fmt.Errorf("configuration: queue_depth %d: want 1 to %d", c.QueueDepth, MaxQueueDepth)
	}
	return nil
}
