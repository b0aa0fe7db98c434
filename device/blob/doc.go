// Package blob keeps a log on a device of this machine and a copy of it in a bucket:
// of S3, Azure, Google Cloud or another service that gocloud.dev/blob knows, or in a
// directory.
//
//	ssd, err := ssdtier.Open("data")
//	dev, err := blob.OpenURL(ctx, ssd, "s3://my-bucket?prefix=store1/", blob.Options{})
//	store, err := kv.Open(kv.Options{Memory: 1 << 30, Device: device.NewTiered(redy, dev)})
//
// The local device is the commit point: writes, Sync, metadata and objects are done
// when it has them, and what is in the bucket follows in the background, some seconds
// later ([Options.Every]). It is a state that the store was in: a log up to some point with the metadata
// and objects that belong to it.
//
// On a new machine, an empty local device and the same bucket bring the store back, at
// the newest state that is in the bucket. Metadata and objects are fetched at once; the
// log stays in the bucket, and is read there, a range at a time, as far as it is not
// written anew. A damaged or missing part of the local device is read there as well.
//
//	catalog/000000000000002a       what a state consists of, as JSON; the highest number counts
//	segment/000000000003-2a-writer part of the log, from one multiple of Options.SegmentSize
//	                               to the next, or to the end
//	object/NAME-2a-writer          an object
//
// A segment that is full is sealed: it is uploaded once more and then never again, until
// truncation deletes it. The one in which the log ends is uploaded with each state.
// Everything in the bucket has a new name, but for the catalog's number, which only one
// can take: so two machines that have the same store are told apart, and the one that
// comes too late is told ([ErrTaken]). Blocks of 4 KiB each have a checksum of their
// bytes and their address.
//
// Drivers are chosen by the program that uses this package, as with gocloud.dev:
//
//	import _ "gocloud.dev/blob/s3blob"
package blob
