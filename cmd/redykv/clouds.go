//go:build !noclouds

package main

// Cloud drivers for --bucket.
import (
	_ "gocloud.dev/blob/azureblob"
	_ "gocloud.dev/blob/s3blob"

	_ "github.com/redykv/redykv/cmd/redykv/internal/gcs"
)
