//go:build !noclouds

package main

// Drivers of the clouds that --bucket may name.
import (
	_ "gocloud.dev/blob/azureblob"
	_ "gocloud.dev/blob/s3blob"

	_ "github.com/redykv/redykv/cmd/redykv/internal/gcs"
)
