"""The wire format: `llm.proto` and what grpcio-tools makes of it (a test regenerates and compares).

python -m grpc_tools.protoc -I . --python_out=. --pyi_out=. llm_service/proto/llm.proto
"""
