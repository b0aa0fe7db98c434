package model

import (
	"embed"
	"fmt"
	"sync"
)

//go:embed shipped/*.json
var shippedFiles embed.FS

// Shipped returns the models that are part of the program, so that an SLO works before
// anything was measured here. They are of mem, shm and tcp, and of shm behind the network
// model rdma, on two processors. They must not be modified.
var Shipped = sync.OnceValue(func() []*Model {
	entries, err := shippedFiles.ReadDir("shipped")
	if err != nil {
		panic(err) // the directory is part of the program
	}
	var models []*Model
	for _, e := range entries {
		data, err := shippedFiles.ReadFile("shipped/" + e.Name())
		if err == nil {
			var m *Model
			if m, err = Parse(data); err == nil {
				models = append(models, m)
				continue
			}
		}
		panic(fmt.Sprintf("model: shipped %s: %v", e.Name(), err)) // a test checks each file
	}
	return models
})
