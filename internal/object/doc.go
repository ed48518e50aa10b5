// Package object is what the rest of Culvert knows of object stores: an object is a
// source that fills given memory, so that the ladder, the ring and the receipts are
// those of files.
//
// A [Bucket] answers single requests: a bucket of S3 ([package s3]) or a web server
// ([package https]). A [File] is an open object: it reads ranges through the scheduler
// of package fetch, counts what that took, and compares checksums of the store. Which
// schemes there are depends on the program: each is registered by its package, because
// a program that needs none should not contain them.
//
// [package s3]: https://pkg.go.dev/github.com/culvert-io/culvert/internal/object/s3
// [package https]: https://pkg.go.dev/github.com/culvert-io/culvert/internal/object/https
package object
