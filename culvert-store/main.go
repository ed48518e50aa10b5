// Command culvert-store serves a directory as S3, for tests and small sites: each
// directory in it is a bucket, each file an object. It is versitygw in one program and
// a Go module of its own, so that users of the library inherit none of it.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
	"github.com/versity/versitygw/s3api/utils"
	"golang.org/x/sys/unix"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "culvert-store:", err)
		os.Exit(1)
	}
}

type options struct {
	dir, listen, cert, key string
	readOnly               bool
	bucket                 string
	access, secret         string
}

func parse(args []string) (o options, err error) {
	f := flag.NewFlagSet("culvert-store", flag.ContinueOnError)
	f.StringVar(&o.listen, "listen", "127.0.0.1:7070", "address to listen on; port 0 is any free one")
	f.StringVar(&o.bucket, "bucket", "", "create this bucket if it is missing")
	f.BoolVar(&o.readOnly, "read-only", false, "refuse writes")
	f.StringVar(&o.cert, "cert", "", "certificate, for TLS")
	f.StringVar(&o.key, "key", "", "key of the certificate")
	f.Usage = func() {
		fmt.Fprintln(f.Output(), "usage: culvert-store [flags] DIR\n\nServe DIR as S3: its directories are buckets. AWS_ACCESS_KEY_ID and\nAWS_SECRET_ACCESS_KEY are the keys that clients need; without them a pair is made.\nIt prints the variables of clients, to be pasted into another terminal.\n\n  culvert-store -bucket models /srv/store")
		f.PrintDefaults()
	}
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() != 1 {
		return o, errors.New("want culvert-store [flags] DIR (see --help)")
	}
	if (o.cert == "") != (o.key == "") {
		return o, errors.New("want --cert with --key (see --help)")
	}
	o.dir = f.Arg(0)
	o.access, o.secret = os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY")
	return o, nil
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return err
	}
	if st, err := os.Stat(dir); err != nil {
		return fmt.Errorf("%w (fix: mkdir %s)", err, o.dir)
	} else if !st.IsDir() {
		return fmt.Errorf("%s is not a directory", o.dir)
	}
	if o.bucket != "" {
		if !utils.IsValidBucketName(o.bucket) {
			return fmt.Errorf("-bucket %s is not a name of a bucket: names have 3 to 63 lower-case letters, digits, dots and hyphens", o.bucket)
		}
		if err := os.MkdirAll(filepath.Join(dir, o.bucket), 0o755); err != nil {
			return err
		}
	}
	if o.listen, err = freePort(o.listen); err != nil {
		return err
	}
	made := o.access == "" || o.secret == ""
	if made {
		o.access, o.secret = rand.Text()[:20], rand.Text()
	}
	be, err := backend(dir)
	if err != nil {
		return err
	}
	scheme := "http"
	if o.cert != "" {
		scheme = "https"
	}
	fmt.Fprintf(out, "export AWS_ENDPOINT_URL=%s://%s\n", scheme, o.listen)
	if made {
		fmt.Fprintf(out, "export AWS_ACCESS_KEY_ID=%s AWS_SECRET_ACCESS_KEY=%s\n", o.access, o.secret)
	}
	fmt.Fprintf(out, "# %s is served until Ctrl-C; clients need these variables\n", dir)
	// versitygw prints remarks that are of no use here. Its errors are returned.
	if os.Stdout, err = os.OpenFile(os.DevNull, os.O_WRONLY, 0); err != nil {
		return err
	}
	return embedgw.RunVersityGW(ctx, be, &embedgw.Config{
		RootUserAccess: o.access, RootUserSecret: o.secret, Region: "us-east-1", Ports: []string{o.listen},
		CertFile: o.cert, KeyFile: o.key, Readonly: o.readOnly, Quiet: true, KeepAlive: true, DisableACLs: true,
		MaxConnections: 4096, MaxRequests: 4096, MultipartMaxParts: 10_000, IAMCacheDisable: true,
	})
}

// backend opens the directory. What S3 keeps of an object beside its bytes goes into
// extended attributes, or beside the directory where there are none.
func backend(dir string) (*posix.Posix, error) {
	if err := (meta.XattrMeta{}).Test(dir); err == nil {
		return posix.New(dir, meta.XattrMeta{}, posix.PosixOpts{})
	}
	side := strings.TrimSuffix(dir, "/") + ".culvert-store"
	if err := os.MkdirAll(side, 0o755); err != nil {
		return nil, err
	}
	m, err := meta.NewSideCar(side)
	if err != nil {
		return nil, err
	}
	return posix.New(dir, m, posix.PosixOpts{SideCarDir: side})
}

// freePort replaces port 0 by a free one.
func freePort(addr string) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || port != "0" {
		return addr, err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err = net.SplitHostPort(l.Addr().String())
	return net.JoinHostPort(host, port), err
}
