#!/bin/bash
# GRPO on GridSim with Miles and a tiny model, on one GPU, in about ten minutes. Nothing is downloaded.
#
#   bash train.sh OUT [further flags for Miles' train.py]
#
# in Miles' container, with agent-env[openenv] installed into its Python, from a checkout of this project. It serves
# GridSim, writes the rows, makes and warms up the model unless they are there, and starts Miles.
#
# Settings, by environment variable:
#   SEED        of the run: which days come when, and what is sampled (default: 1)
#   STEPS       of GRPO (default: 20)
#   UNTIL       the score that the warm start stops at (default: 0.35)
#   MODEL       folder of a warm start to begin from, instead of making one
#   PORT        that GridSim is served at (default: 8200)
#   WARM        fresh envs that are kept ready: as many as rollouts are played at once (default: 64)
#   MILES_HOME  where Miles lies (default: /root/miles)

set -euo pipefail

HERE=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
OUT=$(mkdir -p "$1" && cd -- "$1" && pwd); shift
SEED=${SEED:-1}; STEPS=${STEPS:-20}; PORT=${PORT:-8200}; MILES_HOME=${MILES_HOME:-/root/miles}
PYTHON=${PYTHON:-python3}
MODEL=${MODEL:-$OUT/warm}

# ---- the env server and the rows -------------------------------------------------------------------------------------

"$PYTHON" -m agent_env.cli serve "$HERE/../../bundles/gridsim-v1" --port "$PORT" \
    --max-concurrent-envs 128 --warm "${WARM:-64}" > "$OUT/serve.log" 2>&1 &
SERVER=$!
trap 'kill "$SERVER"' EXIT
until grep -q "^Ctrl-C" "$OUT/serve.log"; do kill -0 "$SERVER"; sleep 0.2; done
# One turn: the call is what is graded. No reward depends on a closing word, so with one in the loss, it drifts.
"$PYTHON" -m agent_env.training.miles "http://127.0.0.1:$PORT" "$OUT/data" --max-turns 1 \
    --reset-timeout 120 --call-timeout 30 --model-timeout 120

# ---- the warm start --------------------------------------------------------------------------------------------------

if [ ! -e "$MODEL" ]; then
    "$PYTHON" "$HERE/model.py" "$OUT/data/train.jsonl" "$OUT/random"
    "$PYTHON" "$HERE/warm_start.py" "$OUT/data/train.jsonl" "$OUT/random" "$MODEL" \
        --until "${UNTIL:-0.35}" --grade-every 25   # this early, 100 steps are worth 0.15
fi

# ---- Miles -----------------------------------------------------------------------------------------------------------

MODEL_ARGS=(
    --train-backend fsdp
    --hf-checkpoint "$MODEL"             # weights, tokenizer and config, for training and SGLang alike
    --attn-implementation sdpa           # what any image has; the model's config sets use_cache to false for it
)

DATA_ARGS=(
    --prompt-data "$OUT/data/train.jsonl"
    --input-key messages
    --metadata-key metadata
    --rollout-shuffle
    --rollout-seed "$SEED"
    --seed "$SEED"
)

EVAL_ARGS=(
    --eval-prompt-data eval "$OUT/data/eval.jsonl"
    --eval-interval 10                   # steps; also before the first
    --n-samples-per-eval-prompt 2        # 400 rollouts: what is left of an interval is the days' own spread
)

ROLLOUT_ARGS=(
    --num-rollout "$STEPS"
    --rollout-batch-size 64              # days a step ...
    --n-samples-per-prompt 8             # ... and rollouts a day: 512
    --global-batch-size 256              # two updates a step: the first 10 steps gain more, the last are no worse
    --rollout-temperature 1.0            # a model that was trained for a minute is unsure enough
    --rollout-max-response-len 160       # tokens of one model turn: a note and 24 numbers are about 75
)

SESSION_ARGS=(
    --use-session-server
    --session-server-port 6400 6404      # four: each is one process, and one would be what a step waits for
    --tito-model qwen3                   # the chat template is Qwen3's, so are the rules for appending turns
    --apply-chat-template-kwargs '{"enable_thinking": false}'
    --custom-generate-function-path miles.rollout.generate_hub.agentic_tool_call.generate
    --custom-agent-function-path agent_env.training.miles.agent.run
    --custom-rm-path agent_env.training.miles.agent.reward
    --dynamic-sampling-filter-path filters.keep_and_count
    --custom-rollout-log-function-path hooks.log_rollout       # ../miles_metrics.py's, and a record for report.py
    --custom-eval-rollout-log-function-path hooks.log_eval_rollout
)

SGLANG_ARGS=(
    --rollout-num-gpus-per-engine 1
    --sglang-server-concurrency 64       # rollouts at once. The HTTP client of Miles, and of its router, spends time on
                                         # a request that grows as the square of its idle connections
    --use-miles-router                   # sglang-router 0.3.2 drops the session server's input_ids
    --sglang-tool-call-parser qwen25
    --sglang-reasoning-parser qwen3
    --sglang-attention-backend triton    # heads of a model this small fit it well
    --sglang-sampling-backend pytorch    # needs no flashinfer
    --sglang-context-length 2048
    --sglang-mem-fraction-static 0.15    # of the GPU's memory, at most ...
    --sglang-max-total-tokens 131072     # ... and 1.5 GB are enough for a step's prompts and 64 rollouts
    --sglang-max-running-requests 64
    --sglang-cuda-graph-max-bs-decode 64 # graphs for every size of batch there is
)

GRPO_ARGS=(
    --advantage-estimator grpo
    --eps-clip 0.2
    --eps-clip-high 0.28
    --entropy-coef 0.0
    --kl-coef 0.0
)

OPTIMIZER_ARGS=(
    --optimizer adam
    --lr "${LR:-1e-4}"                   # a model of 20 M parameters takes a hundred times what one of 4 B does
    --lr-decay-style constant
    --weight-decay 0.0
    --adam-beta1 0.9
    --adam-beta2 0.95
)

CLUSTER_ARGS=(
    --actor-num-nodes 1
    --actor-num-gpus-per-node 1
    --num-gpus-per-node 1
    --colocate
    --no-offload-train --no-offload-rollout  # both fit; moving them out and in would take longer than a step
    --use-dynamic-batch-size
    --max-tokens-per-gpu 8192            # packed samples are masked from each other, which costs their length squared
)

export PYTHONPATH="$MILES_HOME:$HERE:$HERE/..${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONUNBUFFERED=1
export TINY_RECORD="$OUT/record.jsonl"   # hooks.py appends to it
export MILES_HOST_IP=127.0.0.1           # all on this machine
export no_proxy=127.0.0.1,localhost
export RAY_memory_monitor_refresh_ms=0   # Ray would kill workers by what the whole machine uses

rm -f "$TINY_RECORD"
"$PYTHON" "$MILES_HOME/train.py" \
    "${MODEL_ARGS[@]}" "${DATA_ARGS[@]}" "${EVAL_ARGS[@]}" "${ROLLOUT_ARGS[@]}" "${SESSION_ARGS[@]}" \
    "${SGLANG_ARGS[@]}" "${GRPO_ARGS[@]}" "${OPTIMIZER_ARGS[@]}" "${CLUSTER_ARGS[@]}" "$@" > "$OUT/miles.log" 2>&1
"$PYTHON" "$HERE/report.py" run "$OUT" > "$OUT/run.json"
