package transfer

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/atomicfile"
)

const (
	permissions = 0o777
	allModes    = 0o7777
)

// attributes is what a copy has beside its data: mode, owner, times and extended
// attributes.
//
// A new file has the mode of its source without what the umask takes. A file that is
// replaced keeps its mode and group, so that a private file stays private; if it
// belongs to another user, it only takes bits away: nobody can prepare a file in
// which a copy becomes readable.
type attributes struct {
	source *unix.Stat_t
	old    *unix.Stat_t // nil for a new file
	opts   *Options
	mode   uint32 // at the end
	has    uint32 // since begin
	dev    uint64 // of the new file
	acl    []byte // of the file that is replaced; nil if it has none
	setACL bool
}

// created returns the mode to create the file with. It must not be wider than the
// final one: what is open once can be read later.
func (a *attributes) created() fs.FileMode {
	mode := a.source.Mode & permissions
	switch {
	case a.opts.Preserve:
		mode = 0o600
	case a.own():
		mode &= 0o700 // an access control list is inherited, and goes later
	case a.old != nil:
		mode &= a.old.Mode
	}
	return fs.FileMode(mode)
}

// own reports whether a file of this user is replaced.
func (a *attributes) own() bool { return a.old != nil && int(a.old.Uid) == os.Geteuid() }

// begin makes the new file readable and writable for its owner until finish: routes
// open it again.
func (a *attributes) begin(dir *atomicfile.Dir, name string, out *os.File) error {
	var now unix.Stat_t
	if err := unix.Fstat(int(out.Fd()), &now); err != nil {
		return err
	}
	a.mode = now.Mode & allModes
	if a.own() {
		a.mode, a.setACL = a.old.Mode&permissions, true
		if err := a.readACL(dir, name); err != nil {
			return err
		}
		if a.old.Gid != now.Gid && unix.Fchown(int(out.Fd()), -1, int(a.old.Gid)) != nil {
			a.mode &^= 0o070 // they were another group's
		}
	}
	a.has, a.dev = now.Mode&allModes, now.Dev
	return a.chmod(out, a.has|0o600)
}

// chmod sets the mode of the new file, if it is another.
func (a *attributes) chmod(out *os.File, mode uint32) error {
	if mode == a.has {
		return nil
	}
	a.has = mode
	return os.NewSyscallError("fchmod", unix.Fchmod(int(out.Fd()), mode))
}

const aclName = "system.posix_acl_access"

// readACL reads the access control list of the file that is replaced. With one, the
// group's bits of the mode are a limit for all its entries, and without it would be
// the group's rights.
func (a *attributes) readACL(dir *atomicfile.Dir, name string) error {
	f, _, err := dir.OpenRegular(name)
	if err != nil {
		a.mode &^= 0o070 // it is not readable, so nothing is known
		return nil
	}
	defer f.Close()
	acl, err := grow(func(buf []byte) (int, error) { return unix.Fgetxattr(int(f.Fd()), aclName, buf) })
	if isAny(err, unix.ENODATA, unix.ENOTSUP) {
		return nil
	}
	a.acl = acl
	return err
}

// setACL sets the access control list of a file. nil removes one that it inherited
// from its directory.
func setACL(f *os.File, acl []byte) error {
	if acl != nil {
		return unix.Fsetxattr(int(f.Fd()), aclName, acl, 0)
	}
	err := unix.Fremovexattr(int(f.Fd()), aclName)
	if isAny(err, unix.ENODATA, unix.ENOTSUP) {
		return nil
	}
	return err
}

func isAny(err error, list ...error) bool {
	return slices.ContainsFunc(list, func(e error) bool { return errors.Is(err, e) })
}

// finish sets the attributes of a complete file.
func (a *attributes) finish(in, out *os.File) error {
	if a.opts.Preserve {
		return preserve(in, out, a.source)
	}
	if a.setACL {
		if err := setACL(out, a.acl); err != nil {
			return fmt.Errorf("keep the access control list of the file that is replaced: %w", err)
		}
		a.has = ^a.mode // a list changes the mode
	}
	if err := a.chmod(out, a.mode); err != nil {
		return err
	}
	if !a.opts.keepTime {
		return nil
	}
	return futimens(out, a.source.Mtim, a.source.Mtim)
}

// preserve gives an open file or directory the owner, mode, extended attributes and
// times of another. What cannot be kept is an error. The owner comes first: changing
// it takes away mode bits and capabilities.
func preserve(in, out *os.File, st *unix.Stat_t) error {
	fd := int(out.Fd())
	var now unix.Stat_t
	if err := unix.Fstat(fd, &now); err != nil {
		return err
	}
	if now.Uid != st.Uid || now.Gid != st.Gid {
		if err := unix.Fchown(fd, int(st.Uid), int(st.Gid)); err != nil {
			return fmt.Errorf("keep owner %d:%d of %s: %w (fix: run as root, or without --preserve)", st.Uid, st.Gid, in.Name(), err)
		}
	}
	if err := setACL(out, nil); err != nil { // the source's follows, if it has one
		return os.NewSyscallError("fremovexattr", err)
	}
	if err := unix.Fchmod(fd, st.Mode&allModes); err != nil {
		return os.NewSyscallError("fchmod", err)
	}
	if err := copyXattrs(in, out); err != nil {
		return err
	}
	return futimens(out, st.Atim, st.Mtim)
}

// copyXattrs copies the extended attributes that the process can see, and with them
// access control lists and capabilities.
func copyXattrs(in, out *os.File) error {
	names, err := xattrs(in)
	if err != nil {
		return fmt.Errorf("list extended attributes of %s: %w", in.Name(), err)
	}
	for _, name := range names {
		if err := copyXattr(in, out, name); err != nil {
			return fmt.Errorf("keep extended attribute %s of %s: %w (fix: run without --preserve)", name, in.Name(), err)
		}
	}
	return nil
}

// xattrs lists the extended attributes of a file.
func xattrs(f *os.File) (list []string, err error) {
	names, err := grow(func(buf []byte) (int, error) { return unix.Flistxattr(int(f.Fd()), buf) })
	if errors.Is(err, unix.ENOTSUP) {
		return nil, nil
	}
	for name := range bytes.SplitSeq(bytes.TrimSuffix(names, []byte{0}), []byte{0}) {
		if len(name) > 0 {
			list = append(list, string(name))
		}
	}
	return list, err
}

func copyXattr(in, out *os.File, name string) error {
	value, err := grow(func(buf []byte) (int, error) { return unix.Fgetxattr(int(in.Fd()), name, buf) })
	if errors.Is(err, unix.ENODATA) {
		return nil // removed since it was listed
	}
	if err == nil {
		err = unix.Fsetxattr(int(out.Fd()), name, value, 0)
	}
	if strings.HasPrefix(name, "security.selinux") && err != nil {
		return nil // the policy gives the new file its label
	}
	return err
}

// grow calls get with larger buffers until its answer fits.
func grow(get func([]byte) (int, error)) ([]byte, error) {
	for size := 1 << 10; ; size *= 4 {
		buf := make([]byte, size)
		n, err := get(buf)
		if errors.Is(err, unix.ERANGE) && size < 1<<20 {
			continue
		}
		return buf[:max(n, 0)], err
	}
}

// preserveLink gives a symbolic link the owner and times of another.
func preserveLink(dir *atomicfile.Dir, name string, st *unix.Stat_t) error {
	f, err := dir.OpenFile(name, unix.O_PATH, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	fd := int(f.Fd())
	var now unix.Stat_t
	if err := unix.Fstat(fd, &now); err != nil {
		return err
	}
	if now.Mode&unix.S_IFMT != unix.S_IFLNK {
		return fmt.Errorf("%s was replaced during the copy", dir.Path(name))
	}
	if now.Uid != st.Uid || now.Gid != st.Gid {
		if err := unix.Fchownat(fd, "", int(st.Uid), int(st.Gid), unix.AT_EMPTY_PATH); err != nil {
			return fmt.Errorf("keep owner %d:%d of %s: %w (fix: run as root, or without --preserve)", st.Uid, st.Gid, dir.Path(name), err)
		}
	}
	times := []unix.Timespec{st.Atim, st.Mtim}
	return os.NewSyscallError("utimensat", unix.UtimesNanoAt(fd, "", times, unix.AT_EMPTY_PATH))
}
