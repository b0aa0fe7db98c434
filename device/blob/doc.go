// Package blob stores a log on a local device and a copy of it in a bucket: of S3, Azure,
// Google Cloud or another service that gocloud.dev/blob supports, or in a directory.
//
//	ssd, err := ssdtier.Open("data")
//	dev, err := blob.OpenURL(ctx, ssd, "s3://my-bucket?prefix=store1/", blob.Options{})
//	store, err := kv.Open(kv.Options{Memory: 1 << 30, Device: device.NewTiered(redy, dev)})
//
// The local device is the commit point: writes, Sync, metadata and objects are complete when
// it has them. The bucket follows in the background, some seconds later ([Options.Every]). It
// always holds a state of the store: a log up to some address with the metadata and objects
// that belong to it.
//
// On a new machine, an empty local device and the same bucket restore the store, at the
// newest state in the bucket. Metadata and objects are fetched at once. The log stays in the
// bucket and is read there, a range at a time, unless it was written again locally. A damaged
// or missing part of the local device is read from the bucket too.
//
//	catalog/000000000000002a       the parts of a state, as JSON; the highest number counts
//	segment/000000000003-2a-writer part of the log, from one multiple of Options.SegmentSize
//	                               to the next, or to the end
//	object/NAME-2a-writer          an object
//	probe                          shows that a blob can be created once only
//
// A full segment is sealed: it is uploaded once more and not again, until truncation deletes
// it. The segment in which the log ends is uploaded with each state. Every blob has a new
// name, except a catalog, whose number only one writer can create: if two machines have the
// same store, the later one gets [ErrTaken]. A catalog is stored when the bucket has all that it
// names, and only then are older ones deleted. Each block of 4 KiB has a checksum of its bytes
// and its address.
//
// The program that uses this package imports the drivers, as with gocloud.dev:
//
//	import _ "gocloud.dev/blob/s3blob"
package blob
