package culvert_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/culvert-io/culvert"
)

// Files that cannot read the constant repeat it.
func TestOneVersion(t *testing.T) {
	for file, pattern := range map[string]string{
		"clib/core/core.h":           `#define CULVERT_VERSION "(.*)"`,
		"python/culvert/__init__.py": `__version__ = "(.*)"`,
		"python/pyproject.toml":      `(?m)^version = "(.*)"`,
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(pattern).FindSubmatch(text)
		if found == nil || string(found[1]) != culvert.Version {
			t.Errorf("%s has version %q, want %q", file, found, culvert.Version)
		}
	}
}
