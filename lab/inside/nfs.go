package inside

import (
	"fmt"
	"net/netip"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// MountNFS exports a directory by the kernel's NFS server and mounts it with the kernel's
// client at another one, over the loopback interface. It answers once what mountd would
// be asked: which client this is, and which path the root of all exports has.
func MountNFS(export, dir string) error {
	if err := mountNFS(export, dir); err != nil {
		return fmt.Errorf("mount %s over NFS at %s: %w", export, dir, err)
	}
	return nil
}

// From linux/nfsd/export.h: clients may use any port, the server need not write before it
// answers, files need not be below the exported directory, and there is a number for it.
const exportFlags = 0x2 | 0x10 | 0x400 | 0x2000

func mountNFS(export, dir string) error {
	if err := SetAddress("lo", netip.MustParsePrefix("127.0.0.1/8")); err != nil {
		return err
	}
	for fs, at := range map[string]string{"nfsd": "/proc/fs/nfsd", "rpc_pipefs": "/var/lib/nfs/rpc_pipefs"} {
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(fs, at, fs, 0, ""); err != nil {
			return fmt.Errorf("%s: %w", fs, err)
		}
	}
	if err := os.MkdirAll("/var/lib/nfs/v4recovery", 0o700); err != nil {
		return err
	}
	const forever = 1 << 31 // seconds since 1970
	for _, w := range []struct{ file, text string }{
		{"/proc/fs/nfsd/versions", "-2 -3 +4 +4.1 +4.2"},
		{"/proc/fs/nfsd/portlist", "tcp 2049"},
		{"/proc/fs/nfsd/threads", "2"},
		{"/proc/fs/nfsd/v4_end_grace", "Y"},
		{"/proc/net/rpc/auth.unix.ip/channel", fmt.Sprintf("nfsd 127.0.0.1 %d lab", forever)},
		{"/proc/net/rpc/nfsd.fh/channel", fmt.Sprintf(`lab 1 \x00000000 %d %s`, forever, export)},
		{"/proc/net/rpc/nfsd.export/channel", fmt.Sprintf("lab %s %d %d -2 -2 0", export, forever, exportFlags)},
	} {
		if err := writeOnce(w.file, w.text); err != nil {
			return err
		}
	}
	return unix.Mount("127.0.0.1:/", dir, "nfs4", 0, "vers=4.2,addr=127.0.0.1,clientaddr=127.0.0.1,sec=sys")
}

// writeOnce writes a line to a file of the kernel, which takes it by one call.
func writeOnce(file, text string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteString(strings.TrimSpace(text) + "\n"); err != nil {
		return err
	}
	return f.Close()
}
