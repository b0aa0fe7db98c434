//go:build !noclouds

package main

// The buckets of clouds that --bucket can be. They are half of the program, and of the
// time that it takes to start.
import (
	_ "gocloud.dev/blob/azureblob"
	_ "gocloud.dev/blob/gcsblob"
	_ "gocloud.dev/blob/s3blob"
)
