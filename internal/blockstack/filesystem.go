package blockstack

import (
	"fmt"
	"slices"
	"strings"

	"github.com/culvert-io/culvert/internal/storage"
)

// useExt4 is the fix for a file system.
const useExt4 = "put the file on ext4 or xfs"

// passes are the file systems that give the pages of direct I/O to the block layer as
// they are, and write nothing of them elsewhere.
var passes = map[string]bool{"ext2": true, "ext3": true, "ext4": true, "xfs": true}

// networks are the file systems that move bytes to GPU memory themselves, with the
// module that registers with nvidia-fs.
var networks = map[string]string{
	"nfs": nfsModule, "nfs4": nfsModule, "lustre": "lnet", "beegfs": "beegfs", "gpfs": "mmfslinux", "wekafs": "wekafsio", "scatefs": "scatefs",
}

const nfsModule = "rpcrdma"

// IsNetwork reports whether a file system keeps its files on other hosts, which change them
// without this one.
func IsNetwork(name string) bool { return networks[name] != "" }

// changers say what other file systems do.
var changers = map[string]string{
	"btrfs":    "checks checksums of the host's pages, and may compress and copy them",
	"zfs":      "keeps checksums and its own cache of the host's pages, and may compress them",
	"bcachefs": "checks checksums of the host's pages, and may compress and encrypt them",
	"f2fs":     "moves blocks behind the file's back and may compress them",
	"tmpfs":    "keeps the file in host memory",
	"ramfs":    "keeps the file in host memory",
	"squashfs": "compresses",
	"erofs":    "may compress",
	"fuse":     "hands the host's pages to a process",
	"fuseblk":  "hands the host's pages to a process",
	"virtiofs": "hands the host's pages to the hypervisor",
	"9p":       "hands the host's pages to the hypervisor",
	"ecryptfs": "encrypts in host memory",
}

// fileSystem is the layer of a mounted file system.
func fileSystem(m storage.Mount) Layer {
	l := Layer{Kind: FileSystem, Name: m.FS, id: m.Dev}
	if m.Point != "" {
		l.Detail = "at " + m.Point
	}
	switch module, network := networks[m.FS]; {
	case m.FS == "overlay":
		l.Kind = Overlay
	case network:
		l.Kind, l.Type = Network, module
		if module == nfsModule {
			ofNFS(&l, m.Options)
		}
	case passes[m.FS]:
		ofOptions(&l, m.Options)
	case changers[m.FS] != "":
		l.Changes, l.Fix = changers[m.FS], useExt4
	default:
		l.Changes, l.Fix = "is not known to pass bytes unchanged", useExt4
	}
	return l
}

// ofOptions adds what mount options change. Journalled data is written from host
// memory twice.
func ofOptions(l *Layer, options string) {
	for _, o := range strings.Split(options, ",") {
		switch o {
		case "data=journal":
			l.Changes, l.Fix = "writes data through its journal ("+o+")", "mount it with data=ordered"
		case "dax", "dax=always":
			l.Changes, l.Fix = "copies to persistent memory by the CPU ("+o+")", "mount it with dax=never"
		}
	}
}

// ofNFS adds what NFS does to pages: only RDMA moves them as they are, and only if neither
// Kerberos integrity nor privacy works on them.
func ofNFS(l *Layer, options string) {
	const fix = "mount it with proto=rdma,sec=sys or sec=krb5"
	proto, sec := option(options, "proto"), option(options, "sec")
	switch {
	case proto != "rdma" && proto != "rdma6":
		l.Changes, l.Fix = fmt.Sprintf("is not known to use RDMA (proto=%s)", proto), fix
	case slices.Contains([]string{"krb5i", "krb5p"}, sec):
		l.Changes, l.Fix = "signs or encrypts the host's pages (sec="+sec+")", fix
	}
}

// option is the value of a mount option, "" without it.
func option(options, name string) (value string) {
	for _, o := range strings.Split(options, ",") {
		if v, ok := strings.CutPrefix(o, name+"="); ok {
			value = v
		}
	}
	return value
}

// ofFile adds what attributes of the file change. Encryption inside the block layer
// (inlinecrypt) falls back to the CPU, which encrypts the host's pages, where a drive
// has none or has no free key slot.
func ofFile(l *Layer, f storage.Facts) {
	if l.Changes != "" {
		return
	}
	switch {
	case f.Encrypted:
		l.Changes, l.Fix = "encrypts this file", "put the file into a directory without encryption"
	case f.Compressed:
		l.Changes, l.Fix = "compresses this file", "remove the attribute: chattr -c"
	case f.Verity:
		l.Changes, l.Fix = "checks this file's hash in host memory (fs-verity)", "copy the file"
	case f.Journalled:
		l.Changes, l.Fix = "writes this file through its journal", "remove the attribute: chattr -j"
	}
}
