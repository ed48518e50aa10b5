package selftest

import (
	"testing"

	"github.com/culvert-io/culvert/lab/suite"
)

func TestMain(m *testing.M) { suite.Main(m) }
