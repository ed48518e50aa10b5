package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/culvert-io/culvert/lab/internal/job"
)

// A cable joins network cards of two guests.
type cable struct {
	local, remote string // sockets
	mac           string // software RoCE keeps frames to its own address
}

// RunPair starts two guests of one description whose first network cards are joined by a
// cable, and runs a command in each. If one cannot run its command, the other is killed.
func (l *Lab) RunPair(ctx context.Context, g Guest, commands [2]Command) (results [2]Result, err error) {
	if g.NICs < 1 {
		return results, errors.New("pair: the guests have no network card")
	}
	dir, err := os.MkdirTemp("", "culvert-cable-")
	if err != nil {
		return results, err
	}
	defer os.RemoveAll(dir)
	ends := [2]string{filepath.Join(dir, "1"), filepath.Join(dir, "2")}
	group, ctx := errgroup.WithContext(ctx)
	for i, c := range commands {
		number := strconv.Itoa(i + 1)
		wire := &cable{ends[i], ends[1-i], "52:54:00:00:00:0" + number}
		c.Env = append(slices.Clip(c.Env), job.GuestEnv+"="+number)
		group.Go(func() error {
			var err error
			if results[i], err = l.run(ctx, g, c, wire); err != nil {
				return fmt.Errorf("guest %s: %w", number, err)
			}
			return nil
		})
	}
	return results, group.Wait()
}
