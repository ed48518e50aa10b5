package ladder

import (
	"github.com/culvert-io/culvert/internal/blockstack"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/route"
)

// declineStack says which layer below a file makes a direct route wrong: one that does
// not pass bytes unchanged. hooked are the storage drivers that have registered with
// nvidia-fs; nil if the route does not need them.
func declineStack(id route.ID, o dev.OS, f *storage.File, hooked []string) *route.Decline {
	s, err := blockstack.Look(o, f.Facts)
	if err != nil {
		return blockstack.Unknown(id, err)
	}
	if d := s.Decline(id); d != nil || hooked == nil {
		return d
	}
	return s.DeclineUnhooked(id, hooked)
}
