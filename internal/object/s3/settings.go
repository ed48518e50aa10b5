package s3

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go/logging"

	"github.com/culvert-io/culvert/internal/env"
)

// The variables that Culvert adds to those of AWS.
const (
	anonymousVariable = "CULVERT_S3_ANONYMOUS"
	styleVariable     = "CULVERT_S3_STYLE"
)

const defaultRegion = "us-east-1"

// settings are what the environment and the files of AWS say.
type settings struct {
	region      string
	endpoint    string // "" is AWS
	pathStyle   bool   // also at AWS
	hostStyle   bool   // also elsewhere
	anonymous   bool
	credentials aws.CredentialsProvider
}

// fromEnvironment reads the settings as the tools of AWS do: variables, the shared
// files, profiles, single sign-on, roles, the metadata of instances and containers.
func fromEnvironment(ctx context.Context) (s settings, err error) {
	if env.Secure() {
		return s, errors.New("s3: the process has more rights than its caller: credentials of the environment are not used")
	}
	// Its warnings would stand between our lines; what matters comes back as an error.
	cfg, err := config.LoadDefaultConfig(ctx, config.WithLogger(logging.Nop{}))
	if err != nil {
		return s, fmt.Errorf("s3: the settings of AWS: %w (fix: check AWS_PROFILE and ~/.aws/config)", err)
	}
	s = settings{
		region: cmp.Or(cfg.Region, defaultRegion), credentials: cfg.Credentials,
		endpoint:  strings.TrimSuffix(cmp.Or(env.Get("AWS_ENDPOINT_URL_S3"), fromProfile(&cfg), aws.ToString(cfg.BaseEndpoint)), "/"),
		anonymous: env.Get(anonymousVariable) == "1",
	}
	switch style := env.Get(styleVariable); style {
	case "":
	case "path":
		s.pathStyle = true
	case "host":
		s.hostStyle = true
	default:
		return s, fmt.Errorf("%s=%s: want path or host", styleVariable, style)
	}
	return s, nil
}

// fromProfile is the endpoint that a profile sets for S3 alone.
func fromProfile(cfg *aws.Config) string {
	for _, source := range cfg.ConfigSources {
		if shared, ok := source.(config.SharedConfig); ok {
			return shared.Services.ServiceValues["s3"]["endpoint_url"]
		}
	}
	return ""
}
