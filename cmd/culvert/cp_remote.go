package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/internal/abi/gdra"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/internal/remote"
	"github.com/culvert-io/culvert/internal/transfer"
	"github.com/culvert-io/culvert/machine"
)

// remoteScheme begins the name of a file of another host.
const remoteScheme = "rdma://"

// A remoteCopy copies a file between this host and another.
type remoteCopy struct {
	Host  string `json:"host"`
	Name  string `json:"name"`
	File  string `json:"file"`
	Write bool   `json:"write"` // to the host

	machine *machine.Machine
}

// planRemote plans a copy of which one end is on another host; ok is false if none is.
func planRemote(src, dst string) (job copyJob, ok bool, err error) {
	from, isFrom := strings.CutPrefix(src, remoteScheme)
	to, isTo := strings.CutPrefix(dst, remoteScheme)
	if !isFrom && !isTo {
		return nil, false, nil
	}
	if isFrom && isTo {
		return nil, true, usageError{errors.New("one of SOURCE and DEST must be a file of this host")}
	}
	c := &remoteCopy{File: dst, Write: isTo}
	if isTo {
		from, c.File = to, src
	}
	if c.Host, c.Name, err = parseRemote(from); err != nil {
		return nil, true, err
	}
	if strings.HasSuffix(c.Name, "/") && !c.Write {
		return nil, true, usageError{fmt.Errorf("%s ends with a slash: directories cannot be copied from other hosts (fix: name a file)", src)}
	}
	if c.File, err = besideRemote(c.File, c.Name, c.Write); err != nil {
		return nil, true, err
	}
	return c, true, nil
}

// besideRemote is the file of this host that a file of another host is copied to: in a
// directory it gets the last part of its name. What is written to another host must be a file.
func besideRemote(file, name string, write bool) (string, error) {
	st, err := os.Stat(file)
	switch {
	case err != nil || !st.IsDir():
		return file, nil
	case write:
		return "", fmt.Errorf("%s is a directory: only files are copied to other hosts", file)
	}
	return filepath.Join(file, path.Base(name)), nil
}

// parseRemote splits what is behind rdma://.
func parseRemote(text string) (host, name string, err error) {
	host, name, found := strings.Cut(text, "/")
	if !found || host == "" || name == "" {
		return "", "", usageError{fmt.Errorf("%s%s must be %sHOST:PORT/NAME", remoteScheme, text, remoteScheme)}
	}
	return withPort(host, gdra.Port), name, nil
}

func (c *remoteCopy) ends() (src, dst string) {
	far := remoteScheme + c.Host + "/" + c.Name
	if c.Write {
		return c.File, far
	}
	return far, c.File
}

func (c *remoteCopy) String() string {
	src, dst := c.ends()
	return fmt.Sprintf("%-8s %s -> %s provider=%s", "copy", human.Name(src), human.Name(dst), new(rdmaAccess).name())
}

func (c *remoteCopy) on(m *machine.Machine) { c.machine = m }

func (c *remoteCopy) paths() []string { return []string{c.File} }

func (c *remoteCopy) run(ctx context.Context, drv *cufile.Driver, opts transfer.TreeOptions, v verbosity) (transferResult, error) {
	if opts.Preserve {
		return nil, usageError{errors.New("--preserve needs both files on this host")}
	}
	far, err := dialRemote(ctx, c.machine, rdmaAccess{}, remote.ClientConfig{Addr: c.Host})
	if err != nil {
		return nil, err
	}
	defer metered(&opts.Options, v)()
	res, err := far.copy(ctx, drv, c.Name, c.File, c.Write, opts.Options)
	return remoteResult{res, far.Provider()}, errors.Join(err, far.close())
}
