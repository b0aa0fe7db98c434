package redykv_test

import (
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

	store, err := redykv.OpenDir(dir, kv.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := store.Upsert([]byte("greeting"), []byte("hello")); err != nil {
		log.Fatal(err)
	}
	value, err := store.Read([]byte("greeting"), nil)
	fmt.Printf("%s, %v\n", value, err)
	if err := store.Close(); err != nil {
		log.Fatal(err)
	}
	// Output: hello, <nil>
}
