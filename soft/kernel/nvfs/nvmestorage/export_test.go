package nvmestorage

import (
	abi "github.com/culvert-io/culvert/internal/abi/nvme"
	"github.com/culvert-io/culvert/soft/pcie"
)

// QueuePairs is the number of requests in flight at a time.
const QueuePairs = queuePairs

// PRPs is queuePair.prps.
func PRPs(cmd *abi.Command, ranges []pcie.Range) (int, bool) {
	q := &queuePair{list: make([]byte, page)}
	return q.prps(cmd, ranges)
}
