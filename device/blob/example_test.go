package blob_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	_ "gocloud.dev/blob/fileblob"

	"github.com/redykv/redykv/device/blob"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/ssdtier"
)

// A store is created on one machine. The machine is lost, and another one continues with the
// store.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	bucket := filepath.Join(dir, "bucket")
	if err := os.Mkdir(bucket, 0o777); err != nil {
		log.Fatal(err)
	}

	for _, machine := range []string{"first", "second"} {
		ssd, err := ssdtier.Open(filepath.Join(dir, machine))
		if err != nil {
			log.Fatal(err)
		}
		dev, err := blob.OpenURL(context.Background(), ssd, "file://"+bucket, blob.Options{})
		if err != nil {
			log.Fatal(err)
		}
		store, err := kv.Open(kv.Options{Device: dev, Memory: 1 << 20})
		if err != nil {
			log.Fatal(err)
		}
		if machine == "first" {
			err = store.Upsert(context.Background(), []byte("key"), []byte("value"))
		} else {
			var value []byte
			value, err = store.Read(context.Background(), []byte("key"), nil)
			fmt.Printf("%s\n", value)
		}
		if err != nil {
			log.Fatal(err)
		}
		if err := store.Close(); err != nil { // waits for the uploads
			log.Fatal(err)
		}
	}
	// Output: value
}
