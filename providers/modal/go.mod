module github.com/sandglass-dev/sandglass/providers/modal

go 1.26.0

require (
	github.com/modal-labs/modal-client/go v0.11.1
	github.com/sandglass-dev/sandglass v0.0.0
	github.com/sandglass-dev/sandglass/internal/fake/modalfake v0.0.0
	github.com/stretchr/testify v1.12.1
	go.uber.org/goleak v1.3.0
	google.golang.org/grpc v1.83.2
	google.golang.org/protobuf v1.36.11
)

require (
	github.com/aristanetworks/gomap v0.0.0-20230726210543-f4e41046dced // indirect
	github.com/fxamacker/cbor/v2 v2.9.0 // indirect
	github.com/golang-jwt/jwt/v5 v5.3.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/kisielk/og-rek v1.3.0 // indirect
	github.com/pelletier/go-toml/v2 v2.2.4 // indirect
	github.com/x448/float16 v0.8.4 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/exp v0.0.0-20250606033433-dcc06ee1d476 // indirect
	golang.org/x/net v0.58.0 // indirect
	golang.org/x/sync v0.22.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.41.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260526163538-3dc84a4a5aaa // indirect
	mvdan.cc/sh/v3 v3.14.1 // indirect
)

replace (
	github.com/sandglass-dev/sandglass => ../..
	github.com/sandglass-dev/sandglass/internal/fake/modalfake => ../../internal/fake/modalfake
)
