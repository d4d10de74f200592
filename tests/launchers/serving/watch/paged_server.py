"""A real server on 127.0.0.1 whose page of metrics is what a test says, and pages in the formats of real servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Semaphore, Thread

from llmexp.launchers.serving.client.address import Address

LABELS = '{engine="0",model_name="llmexp"}'
VLLM = f"""# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{LABELS} 32.0
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{LABELS} 968.0
# TYPE vllm:num_requests_waiting_by_reason gauge
vllm:num_requests_waiting_by_reason{{engine="0",model_name="llmexp",reason="capacity"}} 960.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{LABELS} 0.875
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{LABELS} 4096.0
# TYPE vllm:prefix_cache_queries_created gauge
vllm:prefix_cache_queries_created{LABELS} 1.788184174081528e+09
vllm:prefix_cache_hits_total{LABELS} 1024.0
vllm:num_preemptions_total{LABELS} 3.0
vllm:prompt_tokens_total{LABELS} 16384.0
vllm:generation_tokens_total{LABELS} 1.048576e+06
vllm:spec_decode_num_drafts_total{LABELS} 125.0
vllm:spec_decode_num_draft_tokens_total{LABELS} 500.0
vllm:spec_decode_num_accepted_tokens_total{LABELS} 350.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",model_name="llmexp",position="0"}} 350.0
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{{engine="0",le="0.001",model_name="llmexp"}} 0.0
vllm:time_to_first_token_seconds_sum{LABELS} 12.5
"""
SGLANG = """# HELP sglang:num_running_reqs The number of running requests.
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="llmexp",pp_rank="0",priority="",tp_rank="0"} 5.0
sglang:num_running_reqs{engine_type="unified",model_name="llmexp",pp_rank="0",priority="1",tp_rank="0"} 4.0
sglang:num_running_reqs{engine_type="unified",model_name="llmexp",pp_rank="0",priority="2",tp_rank="0"} 1.0
sglang:num_queue_reqs{engine_type="unified",model_name="llmexp",pp_rank="0",priority="",tp_rank="0"} 2.0
sglang:token_usage{engine_type="unified",model_name="llmexp",pp_rank="0",tp_rank="0"} 0.28
sglang:spec_accept_rate{engine_type="unified",model_name="llmexp",pp_rank="0",tp_rank="0"} 0.6
sglang:spec_accept_length{engine_type="unified",model_name="llmexp",pp_rank="0",tp_rank="0"} 2.8
sglang:spec_num_draft_tokens{engine_type="unified",model_name="llmexp",pp_rank="0",tp_rank="0"} 4.0
sglang:num_retracted_reqs{engine_type="unified",model_name="llmexp",pp_rank="0",tp_rank="0"} 1.0
sglang:num_retracted_requests_total{engine_type="unified",model_name="llmexp",pp_rank="0",tp_rank="0"} 48.0
sglang:prompt_tokens_total{is_streaming="true",model_name="llmexp"} 800.0
sglang:prompt_tokens_total{is_streaming="false",model_name="llmexp"} 200.0
sglang:generation_tokens_total{is_streaming="true",model_name="llmexp"} 640.0
sglang:cached_tokens_total{cache_source="device",model_name="llmexp"} 90.0
sglang:cached_tokens_total{cache_source="host",model_name="llmexp"} 10.0
"""
TGI = """# TYPE tgi_request_count counter
tgi_request_count 12

# TYPE tgi_queue_size gauge
tgi_queue_size 7

# TYPE tgi_batch_current_size gauge
tgi_batch_current_size 4

# TYPE tgi_request_generated_tokens histogram
tgi_request_generated_tokens_bucket{le="20"} 12
tgi_request_generated_tokens_bucket{le="+Inf"} 12
tgi_request_generated_tokens_sum 240
tgi_request_generated_tokens_count 12

# TYPE tgi_request_input_length histogram
tgi_request_input_length_sum 768
tgi_request_input_length_count 12

# TYPE tgi_request_skipped_tokens summary
tgi_request_skipped_tokens{quantile="0.5"} 2
tgi_request_skipped_tokens_sum 30
tgi_request_skipped_tokens_count 20
"""
LIGHTLLM = """# HELP lightllm_queue_size Queue size
# TYPE lightllm_queue_size gauge
lightllm_queue_size 9.0
# HELP lightllm_batch_current_size Current batch size
# TYPE lightllm_batch_current_size gauge
lightllm_batch_current_size 16.0
# TYPE lightllm_request_input_length histogram
lightllm_request_input_length_bucket{le="0.0"} 0.0
lightllm_request_input_length_count 25.0
lightllm_request_input_length_sum 1600.0
lightllm_cache_length_sum 400.0
lightllm_request_generated_tokens_sum 800.0
"""
LLAMA_SERVER = """# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 512
# HELP llamacpp:tokens_predicted_total Number of generation tokens processed.
# TYPE llamacpp:tokens_predicted_total counter
llamacpp:tokens_predicted_total 128
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 4
# TYPE llamacpp:requests_deferred gauge
llamacpp:requests_deferred 46
"""
PATIENCE_S = 300.0


class PagedServer:
    """Its page, and how it gives it: `hangs` waits after that many bytes until `let_go`, `hides_length` closes."""

    def __init__(self, page: str | Callable[[], str]) -> None:
        self.page = page
        self.status, self.missing_bytes, self.hides_length = 200, 0, False
        self.hangs_after_bytes: int | None = None
        self.let_go = Event()
        self.connections = 0
        self.headers: list[dict[str, str]] = []
        self._asked = Semaphore(0)
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.address = Address("127.0.0.1", self._http.server_address[1])

    def wait_asked(self, times: int) -> None:
        """Return when the page has been asked for so many times more."""
        for _ in range(times):
            assert self._asked.acquire(timeout=PATIENCE_S)

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        self._asked.release()
        self.headers.append(dict(handler.headers))
        body = (self.page() if callable(self.page) else self.page).encode()
        handler.send_response(self.status)
        if self.hides_length:
            handler.send_header("Connection", "close")
        else:
            handler.send_header("Content-Length", str(len(body) + self.missing_bytes))
        if self.missing_bytes:
            handler.close_connection = True
        handler.end_headers()
        sent = len(body) if self.hangs_after_bytes is None else self.hangs_after_bytes
        handler.wfile.write(body[:sent])
        if sent < len(body):
            self.let_go.wait(PATIENCE_S)
            handler.wfile.write(body[sent:])

    @contextmanager
    def running(self) -> Iterator[PagedServer]:
        thread = Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield self
        finally:
            self.let_go.set()
            self._http.shutdown()
            self._http.server_close()
            thread.join()


def _handler(server: PagedServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            server.connections += 1

        def do_GET(self) -> None:
            try:
                server.answer(self)
            except ConnectionError:
                self.close_connection = True

        def log_message(self, *args: object) -> None:
            pass

    return Handler
