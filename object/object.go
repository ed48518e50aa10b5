// Package object makes URLs usable wherever Culvert takes the path of a model or a
// file: s3://, https:// and http://. Import it for its effect:
//
//	import _ "github.com/culvert-io/culvert/object"
//
// It is a package of its own because HTTP, TLS and the credentials of AWS are megabytes
// that a program without objects should not contain. See docs/objects.md.
package object

import (
	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/internal/object/https"
	"github.com/culvert-io/culvert/internal/object/s3"
)

func init() {
	object.Register("s3", s3.Open)
	object.Register("https", https.Open)
	object.Register("http", https.Open)
}
