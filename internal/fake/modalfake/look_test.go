package modalfake_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/modalfake"
)

func named(name string) func(*pb.Sandbox_builder) {
	return func(d *pb.Sandbox_builder) { d.Name = &name }
}

func TestANameIsUniqueAmongWhatRunsInAnApp(t *testing.T) {
	bubble(t, modalfake.Options{Behaviour: fake.Behaviour{DeleteTime: 10 * time.Second}}, func(w *world) {
		first := w.create(named("n")).GetSandboxId()
		_, err := w.modal.SandboxCreateV2(w.ctx(), w.order(named("n")))
		refused(t, codes.AlreadyExists, err)
		other, err := w.modal.AppGetOrCreate(w.ctx(), pb.AppGetOrCreateRequest_builder{
			AppName: "other", ObjectCreationType: pb.ObjectCreationType_OBJECT_CREATION_TYPE_CREATE_IF_MISSING,
		}.Build())
		require.NoError(t, err)
		elsewhere := w.order(named("n"))
		elsewhere.SetAppId(other.GetAppId())
		_, err = w.modal.SandboxCreateV2(w.ctx(), elsewhere)
		require.NoError(t, err)
		w.terminate(first)
		_, err = w.modal.SandboxCreateV2(w.ctx(), w.order(named("n")))
		refused(t, codes.AlreadyExists, err)
		w.sleep(10 * time.Second)
		second := w.create(named("n")).GetSandboxId()

		find := func(app string, ended bool) (string, error) {
			got, err := w.modal.SandboxGetFromNameV2(w.ctx(), pb.SandboxGetFromNameRequest_builder{
				SandboxName: "n", AppName: app, IncludeTerminated: ended,
			}.Build())
			return got.GetSandboxId(), err
		}
		id, err := find("app", false)
		require.NoError(t, err)
		assert.Equal(t, second, id)
		w.terminate(second)
		w.sleep(10 * time.Second)
		_, err = find("app", false)
		refused(t, codes.NotFound, err)
		id, err = find("app", true)
		require.NoError(t, err)
		assert.Equal(t, second, id, "the latest")
		_, err = find("no such app", true)
		refused(t, codes.NotFound, err)
	})
}

func TestANameCanBeGivenOnceAndLater(t *testing.T) {
	bubble(t, modalfake.Options{}, func(w *world) {
		set := func(id, name string) error {
			_, err := w.modal.SandboxSetName(w.ctx(), pb.SandboxSetNameRequest_builder{SandboxId: id, Name: name}.Build())
			return err
		}
		a, b := w.create(named("a")).GetSandboxId(), w.create(nil).GetSandboxId()
		refused(t, codes.AlreadyExists, set(b, "a"))
		refused(t, codes.InvalidArgument, set(b, "not a name"))
		require.NoError(t, set(b, "b"))
		refused(t, codes.FailedPrecondition, set(b, "c"))
		_, err := w.modal.SandboxCreateV2(w.ctx(), w.order(named("b")))
		refused(t, codes.AlreadyExists, err)
		w.terminate(a)
		refused(t, codes.FailedPrecondition, set(a, "d"))
	})
}

func TestListsAreNewestFirstInPagesThatEndWithAnEmptyOne(t *testing.T) {
	bubble(t, modalfake.Options{Quirks: modalfake.Quirks{PageSize: 2}}, func(w *world) {
		var made []string
		for range 5 {
			made = append(made, w.create(nil).GetSandboxId()) // at the same moment
		}
		slices.Reverse(made)
		var got []string
		before, pages := 0.0, 0
		for pages < 10 {
			page, err := w.modal.SandboxListV2(w.ctx(), pb.SandboxListRequest_builder{BeforeTimestamp: before}.Build())
			require.NoError(t, err)
			pages++
			if len(page.GetSandboxes()) == 0 {
				break
			}
			for _, i := range page.GetSandboxes() {
				got, before = append(got, i.GetId()), i.GetCreatedAt()
			}
		}
		assert.Equal(t, made, got)
		assert.Equal(t, 4, pages)
	})
}

func TestEqualTimesLoseASandboxAtAPagesEdgeOrGoRound(t *testing.T) {
	for included, want := range map[bool]int{false: 0, true: 2} {
		t.Run(fmt.Sprint(included), func(t *testing.T) {
			o := modalfake.Options{Quirks: modalfake.Quirks{PageSize: 2, EqualTimes: true, EdgeIncluded: included}}
			bubble(t, o, func(w *world) {
				for range 3 {
					w.create(nil)
				}
				first, err := w.modal.SandboxListV2(w.ctx(), &pb.SandboxListRequest{})
				require.NoError(t, err)
				require.Len(t, first.GetSandboxes(), 2)
				assert.Len(t, w.list(pb.SandboxListRequest_builder{BeforeTimestamp: first.GetSandboxes()[1].GetCreatedAt()}), want)
			})
		})
	}
}

func TestAListTakesAllTagsTheAppAndTheEnvironment(t *testing.T) {
	bubble(t, modalfake.Options{}, func(w *world) {
		a := w.create(nil, "run", "1", "who", "me").GetSandboxId()
		b := w.create(nil, "run", "1").GetSandboxId()
		assert.Equal(t, []string{b, a}, w.list(pb.SandboxListRequest_builder{Tags: pairs("run", "1")}))
		assert.Equal(t, []string{a}, w.list(pb.SandboxListRequest_builder{Tags: pairs("run", "1", "who", "me"), AppId: w.app}))
		assert.Empty(t, w.list(pb.SandboxListRequest_builder{Tags: pairs("run", "2")}))
		assert.Empty(t, w.list(pb.SandboxListRequest_builder{Tags: pairs("run", "")}))
		assert.Empty(t, w.list(pb.SandboxListRequest_builder{EnvironmentName: "dev"}))
		assert.Len(t, w.list(pb.SandboxListRequest_builder{EnvironmentName: "main"}), 2)
		_, err := w.modal.SandboxListV2(w.ctx(), pb.SandboxListRequest_builder{AppId: "ap-none"}.Build())
		refused(t, codes.NotFound, err)
	})
}

func TestARowOfAListTellsWhatIsKnown(t *testing.T) {
	bubble(t, modalfake.Options{Behaviour: fake.Behaviour{StartTime: 2 * time.Second}}, func(w *world) {
		begin := float64(time.Now().Unix())
		id := w.create(func(d *pb.Sandbox_builder) {
			d.Name, d.IdleTimeoutSecs, d.EntrypointArgs = ptr("n"), ptr(uint32(60)), []string{"sleep", "10"}
		}, "k", "v").GetSandboxId()
		w.end(id)
		got, err := w.modal.SandboxListV2(w.ctx(), pb.SandboxListRequest_builder{IncludeFinished: true}.Build())
		require.NoError(t, err)
		i := got.GetSandboxes()[0]
		assert.Equal(t, id, i.GetId())
		assert.Equal(t, "n", i.GetName())
		assert.Equal(t, w.app, i.GetAppId())
		assert.Equal(t, uint32(600), i.GetTimeoutSecs())
		assert.Equal(t, uint32(60), i.GetIdleTimeoutSecs())
		assert.Equal(t, "v", i.GetTags()[0].GetTagValue())
		assert.InDelta(t, begin, i.GetCreatedAt(), 0.01)
		assert.InDelta(t, begin+2, i.GetTaskInfo().GetStartedAt(), 0.01)
		assert.InDelta(t, begin+12, i.GetTaskInfo().GetFinishedAt(), 0.01)
		assert.Equal(t, statusSuccess, i.GetTaskInfo().GetResult().GetStatus())
	})
}

func TestTheNewerListShowsTheOlderBackendTooAndLater(t *testing.T) {
	bubble(t, modalfake.Options{Quirks: modalfake.Quirks{MirrorLag: 5 * time.Second}}, func(w *world) {
		in := w.order(nil)
		old, err := w.modal.SandboxCreate(w.ctx(), pb.SandboxCreateRequest_builder{AppId: w.app, Definition: in.GetDefinition()}.Build())
		require.NoError(t, err)
		newer := w.create(nil).GetSandboxId()
		assert.Equal(t, []string{newer}, w.list(pb.SandboxListRequest_builder{}))
		w.sleep(5 * time.Second)
		assert.Equal(t, []string{newer, old.GetSandboxId()}, w.list(pb.SandboxListRequest_builder{}))
		got, err := w.modal.SandboxList(w.ctx(), &pb.SandboxListRequest{})
		require.NoError(t, err)
		require.Len(t, got.GetSandboxes(), 1)
		assert.Equal(t, old.GetSandboxId(), got.GetSandboxes()[0].GetId())
	})
}

func TestListsAndLooksMayLag(t *testing.T) {
	h := fake.Behaviour{ListMissesNew: 2 * time.Second, ListShowsDeleted: 3 * time.Second, GetShowsDeleted: 3 * time.Second}
	bubble(t, modalfake.Options{Behaviour: h}, func(w *world) {
		id := w.create(nil).GetSandboxId()
		assert.Empty(t, w.list(pb.SandboxListRequest_builder{}))
		w.sleep(2 * time.Second)
		assert.Len(t, w.list(pb.SandboxListRequest_builder{}), 1)
		w.terminate(id)
		assert.Len(t, w.list(pb.SandboxListRequest_builder{}), 1)
		assert.Nil(t, w.wait(id, 0))
		w.sleep(3 * time.Second)
		assert.Empty(t, w.list(pb.SandboxListRequest_builder{}))
		assert.NotNil(t, w.wait(id, 0))
	})
}

func TestSettingTagsReplacesAll(t *testing.T) {
	bubble(t, modalfake.Options{Quirks: modalfake.Quirks{MaxTags: 2, MaxTagKey: 3, MaxTagValue: 4}}, func(w *world) {
		id := w.create(nil, "a", "1", "b", "2").GetSandboxId()
		set := func(tags ...string) error {
			_, err := w.modal.SandboxTagsSetV2(w.ctx(), pb.SandboxTagsSetRequest_builder{SandboxId: id, Tags: pairs(tags...)}.Build())
			return err
		}
		get := func() []*pb.SandboxTag {
			got, err := w.modal.SandboxTagsGetV2(w.ctx(), pb.SandboxTagsGetRequest_builder{SandboxId: id}.Build())
			require.NoError(t, err)
			return got.GetTags()
		}
		assert.Len(t, get(), 2)
		require.NoError(t, set("hb", "9"))
		require.Len(t, get(), 1)
		assert.Equal(t, "hb", get()[0].GetTagName())
		assert.Empty(t, w.list(pb.SandboxListRequest_builder{Tags: pairs("a", "1")}))
		refused(t, codes.InvalidArgument, set("a", "1", "b", "2", "c", "3"))
		refused(t, codes.InvalidArgument, set("long", "1"))
		refused(t, codes.InvalidArgument, set("a", "12345"))
		refused(t, codes.InvalidArgument, set("", "1"))
		require.NoError(t, set())
		assert.Empty(t, get())
		_, err := w.modal.SandboxCreateV2(w.ctx(), w.order(nil, "long", "1"))
		refused(t, codes.InvalidArgument, err)
	})
}

func TestTunnelsLeadToPortsWhileTheSandboxRuns(t *testing.T) {
	bubble(t, modalfake.Options{Quirks: modalfake.Quirks{TunnelTime: 3 * time.Second}}, func(w *world) {
		got := w.create(func(d *pb.Sandbox_builder) {
			d.OpenPorts = pb.PortSpecs_builder{Ports: []*pb.PortSpec{
				pb.PortSpec_builder{Port: 80}.Build(), pb.PortSpec_builder{Port: 22, Unencrypted: true}.Build(),
			}}.Build()
		})
		assert.Empty(t, got.GetTunnels())
		ask := func(timeout float32) *pb.SandboxGetTunnelsResponse {
			got, err := w.modal.SandboxGetTunnelsV2(w.ctx(), pb.SandboxGetTunnelsRequest_builder{
				SandboxId: got.GetSandboxId(), Timeout: timeout,
			}.Build())
			require.NoError(t, err)
			return got
		}
		assert.Equal(t, statusTimeout, ask(1).GetResult().GetStatus(), "not yet")
		tunnels := ask(10).GetTunnels()
		require.Len(t, tunnels, 2)
		assert.Regexp(t, `\.modal\.host$`, tunnels[0].GetHost())
		assert.False(t, tunnels[0].HasUnencryptedHost())
		assert.NotZero(t, tunnels[1].GetUnencryptedPort())
		w.terminate(got.GetSandboxId())
		assert.Equal(t, statusTerminated, ask(1).GetResult().GetStatus())
	})
}
