package ycsb_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redykv/redykv/ycsb"
)

func ExampleCompare() {
	const records, valueSize = 20_000, 8
	logBytes := ycsb.LogBytes(records, valueSize)
	results, err := ycsb.Compare(context.Background(), ycsb.Comparison{
		Shape: ycsb.Shape{
			Records: records, ValueSize: valueSize, Depth: ycsb.DefaultDepth, Net: "none",
			Memory: ycsb.DefaultMemory(logBytes), // a sixth of the log
		},
		Devices:       []ycsb.Device{ycsb.Memory},
		Distributions: ycsb.Distributions,
		Threads:       []int{1},
		Duration:      20 * time.Millisecond,
		Dir:           ".",
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range results {
		fmt.Printf("%s: %d wrong, measured: %v\n", r.Experiment, r.Errors, r.Mops > 0)
	}
	// Output:
	// memory/uniform/1: 0 wrong, measured: true
	// memory/zipfian/1: 0 wrong, measured: true
}
