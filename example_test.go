package redykv_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/redykv/redykv"
	"github.com/redykv/redykv/kv"
)

// A store in a directory: opened, written, read, closed.
func Example() {
	dir, err := os.MkdirTemp("", "redykv")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	ctx := context.Background()
	store, err := redykv.OpenDir(dir, kv.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := store.Upsert(ctx, []byte("greeting"), []byte("hello")); err != nil {
		log.Fatal(err)
	}
	value, err := store.Read(ctx, []byte("greeting"), nil)
	fmt.Printf("%s, %v\n", value, err)
	if err := store.Close(); err != nil {
		log.Fatal(err)
	}
	// Output: hello, <nil>
}
