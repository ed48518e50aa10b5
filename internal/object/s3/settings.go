package s3

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
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
	service     string // the name of S3 at AWS; "" is s3
	pathStyle   bool   // also at AWS
	hostStyle   bool   // also elsewhere
	anonymous   bool
	credentials aws.CredentialsProvider
	// reload finds credentials anew; nil if that is of no use.
	reload func(context.Context) (aws.CredentialsProvider, error)
	roots  *x509.CertPool // certificates to trust; nil: the system's
}

// fromEnvironment reads the settings as the tools of AWS do: variables, the shared
// files, profiles, single sign-on, roles, the metadata of instances and containers.
func fromEnvironment(ctx context.Context) (s settings, err error) {
	if env.Secure() {
		return s, errors.New("s3: the process has more rights than its caller: credentials of the environment are not used")
	}
	cfg, err := load(ctx)
	if err != nil {
		return s, fmt.Errorf("s3: the settings of AWS: %w (fix: check AWS_PROFILE and ~/.aws/config)", err)
	}
	s = settings{
		region: cmp.Or(cfg.Region, defaultRegion), credentials: cfg.Credentials, endpoint: strings.TrimSuffix(endpoint(&cfg), "/"),
		service: service(&cfg), anonymous: env.Get(anonymousVariable) == "1", roots: roots(&cfg),
	}
	s.reload = func(ctx context.Context) (aws.CredentialsProvider, error) {
		cfg, err := load(ctx)
		return cfg.Credentials, err
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

// load has the SDK read everything. Its warnings would stand between our lines; what
// matters comes back as an error.
func load(ctx context.Context) (aws.Config, error) {
	return config.LoadDefaultConfig(ctx, config.WithLogger(logging.Nop{}))
}

// endpoint is that of another store: the variable for S3, the variable for all services,
// that of the profile for S3, that of the profile for all, in this order, as the clients
// of the SDK have it. The SDK has looked at AWS_IGNORE_CONFIGURED_ENDPOINT_URLS.
func endpoint(cfg *aws.Config) string {
	if ignored, _, err := config.GetIgnoreConfiguredEndpoints(context.Background(), cfg.ConfigSources); err == nil && ignored {
		return ""
	}
	return cmp.Or(env.Get("AWS_ENDPOINT_URL_S3"), env.Get("AWS_ENDPOINT_URL"), fromProfile(cfg), aws.ToString(cfg.BaseEndpoint))
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

// service is the name of S3 in the addresses of AWS, which variables and profiles change.
func service(cfg *aws.Config) string {
	name, dual := "s3", false
	for _, source := range slices.Backward(cfg.ConfigSources) { // the first wins
		if s, ok := source.(interface {
			GetUseFIPSEndpoint(context.Context) (aws.FIPSEndpointState, bool, error)
		}); ok {
			if v, found, err := s.GetUseFIPSEndpoint(context.Background()); err == nil && found {
				name = map[bool]string{true: "s3-fips", false: "s3"}[v == aws.FIPSEndpointStateEnabled]
			}
		}
		if s, ok := source.(interface {
			GetUseDualStackEndpoint(context.Context) (aws.DualStackEndpointState, bool, error)
		}); ok {
			if v, found, err := s.GetUseDualStackEndpoint(context.Background()); err == nil && found {
				dual = v == aws.DualStackEndpointStateEnabled
			}
		}
	}
	if dual {
		name += ".dualstack"
	}
	return name
}

// roots are the certificates of AWS_CA_BUNDLE, or ca_bundle of a profile.
func roots(cfg *aws.Config) *x509.CertPool {
	c, ok := cfg.HTTPClient.(*awshttp.BuildableClient)
	if !ok || c.GetTransport().TLSClientConfig == nil {
		return nil
	}
	return c.GetTransport().TLSClientConfig.RootCAs
}
