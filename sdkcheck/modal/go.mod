module github.com/sandglass-dev/sandglass/sdkcheck/modal

go 1.26.0

require (
	github.com/modal-labs/modal-client/go v0.11.1
	github.com/sandglass-dev/sandglass v0.0.0
	github.com/sandglass-dev/sandglass/internal/fake/modalfake v0.0.0
	github.com/stretchr/testify v1.12.1
	google.golang.org/grpc v1.83.2
)

require (
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/net v0.58.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.41.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260526163538-3dc84a4a5aaa // indirect
	google.golang.org/protobuf v1.36.11 // indirect
	mvdan.cc/sh/v3 v3.14.1 // indirect
)

replace (
	github.com/sandglass-dev/sandglass => ../..
	github.com/sandglass-dev/sandglass/internal/fake/modalfake => ../../internal/fake/modalfake
)
